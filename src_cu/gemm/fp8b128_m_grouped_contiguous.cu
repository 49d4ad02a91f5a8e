// gemm.fp8b128.m_grouped_contiguous: the rows of A lie group after group, each group is multiplied by weights of its own. As
// dense with many tokens, but for the order: tiles begin where groups begin, wherever that is, and end where they end.

#include "gemm/many_tokens.cuh"
#include "gemm/tile_order.cuh"

namespace zoo {

using Tile = Fp8b128Tile<Variant::TOKENS, Variant::WEIGHTS, Variant::STAGES, Variant::WARPGROUPS, false, Variant::OVERLAPPED>;
using Way = ManyTokens<Tile>;
static_assert(sizeof(Way) == Tile::ALL_STAGES_BYTES + Tile::MATH_WARPS * 2048, "what the table launches with");

}  // namespace zoo

extern "C" __global__ void __launch_bounds__(zoo::Tile::THREADS, Variant::CTAS)
ZOO_KERNEL(const __grid_constant__ zoo::TensorMap a, const __grid_constant__ zoo::TensorMap b, const float* a_scale,
           const float* b_scale, uint8_t* d, const int* offsets, int groups, int M, int N, int blocks, int64_t a_scale_row,
           int64_t a_scale_block, int64_t b_scale_group, int64_t b_scale_row, int64_t b_scale_block, int64_t d_stride) {
    extern __shared__ __align__(1024) uint8_t memory[];
    const zoo::Scales a_scales{a_scale, a_scale_row, a_scale_block, M};
    const zoo::Scales b_scales{b_scale, b_scale_row, b_scale_block, zoo::tiles_of(N, zoo::SCALE_BLOCK)};
    const zoo::Operands<zoo::Tile> operands{a, b, a_scales, b_scales, 0, b_scale_group, 0, N};
    const zoo::Matrix<Variant::d> target{d, d_stride, N};
    const zoo::GroupedOrder<zoo::Tile, Variant::BAND, zoo::OneAfterTheOther> order({offsets}, groups, N, blocks);
    reinterpret_cast<zoo::Way*>(memory)->run(order, operands, target);
}
