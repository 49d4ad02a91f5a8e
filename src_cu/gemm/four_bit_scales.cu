// As four_bit.cu, but A has a scale for 1 x 128: a_scale_row, a_scale_block and a_scale_group are the strides of TokenScales
// (four_bit/load.cuh). Rows of groups are gathered where box_rows is 0, by the tiles of way.cuh that MAY_GATHER.

#include "gemm/four_bit/way.cuh"

extern "C" __global__ void __launch_bounds__(zoo::Tile::THREADS, Variant::CTAS)
    ZOO_KERNEL(const __grid_constant__ zoo::TensorMap a, const uint8_t* a_first, int64_t a_stride, const uint8_t* b, uint8_t* d,
               int64_t d_stride, int d_kind, const int* places, const int* index, int groups, int rows, int a_rows, int box_rows,
               int N, int tiles, int chunks, const float* a_scale, const float* alpha, const uint8_t* largest,
               const uint8_t* bias, int bias_is_bf16, const float* row_scale, const float* a_block_scale, int64_t a_scale_row,
               int64_t a_scale_block, int64_t a_scale_group) {
    extern __shared__ __align__(1024) uint8_t memory[];
    const zoo::TokenScales scales{a_block_scale, a_scale_row, a_scale_block, a_scale_group, zoo::tiles_of(chunks, 2)};
    const zoo::FourBitOperands<zoo::Tile> operands{a, {b, tiles, chunks}, box_rows, scales};
    const zoo::IndexedRows indexed{a_first, a_stride, a_rows, chunks * zoo::CHUNK, index};
    const zoo::FourBitResult<zoo::Tile::FORMAT> result{
        d,      d_stride, d_kind,  N,    a_scale,           zoo::MAY_GATHER ? index : nullptr,
        a_rows, alpha,    largest, bias, bias_is_bf16 != 0, row_scale};
    const auto order = [&] {
        return zoo::order_of<zoo::Order>(places, groups, rows, box_rows, N, zoo::tiles_of(chunks, zoo::PROMOTED_CHUNKS));
    };
    reinterpret_cast<zoo::Way*>(memory)->run(order, operands, indexed, result);
}
