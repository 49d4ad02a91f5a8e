// gemm.fp8_nvfp4.<grouping> and gemm.fp8_mxfp4.<grouping>: D = A B^T of e4m3 A, whose rows are called tokens, and 4-bit B, whose rows are
// called weights, on Hopper, whose tensor cores know no 4-bit numbers: each weight becomes an e4m3 in a register on its way there.
//
// One warp copies (and three gather, where rows come through an index), one or two warpgroups unpack, multiply, promote and store. For 256
// tokens two multiply, and one decodes:
//
//     four_bit/fragments.cuh     from packed codes and scales to registers
//     four_bit/tile.cuh          the tile and its ring of stages
//     four_bit/load.cuh          where operands come from
//     four_bit/width.cuh         how many of a tile's tokens are multiplied
//     four_bit/multiply.cuh      the loop over K, promoted every 256 of it, or never if a launch asks for that
//     four_bit/halves.cuh        the loop over K, promoted every 128 of it by tokens' scales
//     four_bit/finish.cuh        from sums to D
//     four_bit/shared_sums.cuh   the same where the CTAs of a cluster share K
//     four_bit/product.cuh       the ways of putting them together
//     four_bit/decoded_product.cuh     the way of 256 tokens, with a tile, a decoder (decode.cuh) and an end (finish_rows.cuh) of its own
//     four_bit/way.cuh           the one that a variant is
//     order.cuh, many_groups.cuh, tile_order.cuh, pushed_sums.cuh     who computes which tile; how sums of a cluster meet: the latter two as FP8

#include "gemm/four_bit/way.cuh"

// rows: of D, of a group's place, or 0; a_rows: of A where rows are gathered; tiles: of 64 rows of B; chunks: 64 of K each; promotes:
// whether sums leave the tensor cores every 256 of K, in tiles that may let it be.
extern "C" __global__ void __launch_bounds__(zoo::Tile::THREADS, Variant::CTAS)
    ZOO_KERNEL(const __grid_constant__ zoo::TensorMap a, const uint8_t* a_first, int64_t a_stride, const uint8_t* b, uint8_t* d,
               int64_t d_stride, int d_kind, const int* places, const int* index, int groups, int rows, int a_rows, int box_rows,
               int N, int tiles, int chunks, const float* a_scale, const float* alpha, const uint8_t* largest,
               const uint8_t* bias, int bias_is_bf16, const float* row_scale, int promotes) {
    extern __shared__ __align__(1024) uint8_t memory[];
    const zoo::FourBitOperands<zoo::Tile> operands{a, {b, tiles, chunks}, box_rows, {}, promotes != 0};
    const zoo::IndexedRows indexed{a_first, a_stride, a_rows, chunks * zoo::CHUNK, index};
    const zoo::FourBitResult<zoo::Tile::FORMAT> result{
        d,      d_stride, d_kind,  N,    a_scale,           zoo::GATHERS ? index : nullptr,
        a_rows, alpha,    largest, bias, bias_is_bf16 != 0, row_scale};
    const auto order = [&] {
        return zoo::order_of<zoo::Order>(places, groups, rows, box_rows, N, zoo::tiles_of(chunks, zoo::PROMOTED_CHUNKS));
    };
    reinterpret_cast<zoo::Way*>(memory)->run(order, operands, indexed, result);
}
