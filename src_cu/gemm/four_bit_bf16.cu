// gemm.bf16_nvfp4.<grouping> and gemm.bf16_mxfp4.<grouping>: D = A B^T of bf16 A, whose rows are called tokens, and 4-bit B, whose rows are
// called weights, on Hopper: each weight becomes a bf16, exactly, in a register on its way to the tensor core. Weights are packed for bf16,
// in another order than those of four_bit.cu.
//
// One warp copies (and three gather, where rows come through an index), two warpgroups unpack, multiply and store:
//
//     four_bit/bf16_fragments.cuh     from packed codes and scales to registers; bf16_pairs.cuh: two bf16 in one
//     four_bit/bf16_tile.cuh          the tile and its ring of stages
//     four_bit/bf16_multiply.cuh      the loop over K
//     four_bit/bf16_product.cuh       all of them put together
//     four_bit/load.cuh, finish.cuh, shared_sums.cuh, tile_order.cuh     as where tokens are FP8

#include <type_traits>

#include "gemm/four_bit/bf16_product.cuh"

namespace zoo {

// GROUPING: 0 one matrix, with what groups have not, 1 one matrix or groups, 2 gathered rows of groups, 3 groups.
constexpr bool DENSE = Variant::GROUPING == 0, GATHERS = Variant::GROUPING == 2;
using Tile = Bf16Tile<Weights(Variant::FORMAT), Variant::TOKENS, Variant::PARTS, Variant::STAGES, Variant::CHUNKS, GATHERS>;
using OfGroups =
    std::conditional_t<Variant::GROUPING != 1, OrderOfFewOrManyGroups<Tile, Variant::TOKENS, Variant::BAND, EndsOrPlaces>,
                       OneOrGroupedOrder<Tile, Variant::BAND>>;
using Order = std::conditional_t<DENSE, OrderOfOne<Tile, Variant::TOKENS, Variant::SPLITS, Variant::BAND>, OfGroups>;
using Way = Bf16Product<Tile, Order, Variant::SPLITS>;
constexpr int DYNAMIC_SHARED_BYTES = sizeof(Way);

}  // namespace zoo

// rows: of D, of a group's place, or 0; a_rows: of A where rows are gathered; tiles: of 64 rows of B; chunks: 64 of K each.
extern "C" __global__ void __launch_bounds__(zoo::Tile::THREADS, Variant::CTAS)
    ZOO_KERNEL(const __grid_constant__ zoo::TensorMap a, const uint8_t* a_first, int64_t a_stride, const uint8_t* b, uint8_t* d,
               int64_t d_stride, int d_kind, const int* places, const int* index, int groups, int rows, int a_rows, int box_rows,
               int N, int K, int tiles, int chunks, const float* alpha, const uint8_t* largest, const uint8_t* bias,
               int bias_is_bf16, const float* row_scale) {
    extern __shared__ __align__(1024) uint8_t memory[];
    const zoo::FourBitOperands<zoo::Tile> operands{a, {b, tiles, chunks}, box_rows};
    const zoo::IndexedRows indexed{a_first, 2 * a_stride, a_rows, 2 * K, index};
    const zoo::FourBitResult<zoo::Tile::FORMAT> result{d,      d_stride, d_kind,  N,    nullptr,           nullptr,
                                                       a_rows, alpha,    largest, bias, bias_is_bf16 != 0, row_scale};
    const auto order = zoo::order_of<zoo::Order>(places, groups, rows, box_rows, N, zoo::tiles_of(chunks, zoo::Tile::CHUNKS));
    reinterpret_cast<zoo::Way*>(memory)->run(order, operands, indexed, result);
}
