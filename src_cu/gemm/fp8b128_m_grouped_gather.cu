// gemm.fp8b128.m_grouped_gather: as m_grouped_contiguous, but row i of D takes row index[i] of A, so that tokens need not be
// permuted, nor copied for each of their experts. Only the loading warps differ: gathered_rows.cuh.

#include "gemm/gathered_rows.cuh"
#include "gemm/many_tokens.cuh"
#include "gemm/tile_order.cuh"

namespace zoo {

using Tile = GatheringTile<
    Fp8b128Tile<Variant::TOKENS, Variant::WEIGHTS, Variant::STAGES, Variant::WARPGROUPS, false, Variant::OVERLAPPED>>;
using Way = ManyTokens<Tile>;
static_assert(sizeof(Way) == Tile::ALL_STAGES_BYTES + Tile::MATH_WARPS * 2048, "what the table launches with");

}  // namespace zoo

extern "C" __global__ void __launch_bounds__(zoo::Tile::THREADS, Variant::CTAS)
ZOO_KERNEL(const __grid_constant__ zoo::TensorMap b, const uint8_t* a, const float* a_scale, const float* b_scale, uint8_t* d,
           const int* index, const int* offsets, int groups, int rows, int N, int K, int64_t a_stride, int64_t a_scale_row,
           int64_t a_scale_block, int64_t b_scale_group, int64_t b_scale_row, int64_t b_scale_block, int64_t d_stride) {
    extern __shared__ __align__(1024) uint8_t memory[];
    const zoo::Scales a_scales{a_scale, a_scale_row, a_scale_block, rows};
    const zoo::Scales b_scales{b_scale, b_scale_row, b_scale_block, zoo::tiles_of(N, zoo::SCALE_BLOCK)};
    const zoo::GatheredOperands<zoo::Tile> operands{{a, a_stride, rows, K, index}, b, a_scales, b_scales, b_scale_group, N};
    const zoo::Matrix<Variant::d> target{d, d_stride, N};
    const zoo::GroupedOrder<zoo::Tile, Variant::BAND, zoo::OneAfterTheOther> order({offsets}, groups, N,
                                                                                   zoo::tiles_of(K, zoo::SCALE_BLOCK));
    reinterpret_cast<zoo::Way*>(memory)->run(order, operands, target);
}
