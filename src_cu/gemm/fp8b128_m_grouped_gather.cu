// gemm.fp8b128.m_grouped_gather: as m_grouped_contiguous, but row i of D takes row index[i] of A, so that tokens need not be
// permuted, nor copied for each of their experts. Only the loading warps differ: in MOVED variants, which need the workspace,
// one of them moves rows into the order of D (moved_rows.cuh); in others they gather them for every tile anew (gathered_rows.cuh).

#include <type_traits>

#include "gemm/pipeline/few_tokens.cuh"
#include "gemm/load/gathered_rows.cuh"
#include "gemm/pipeline/many_tokens.cuh"
#include "gemm/load/moved_rows.cuh"
#include "gemm/epilogue/sum.cuh"
#include "gemm/schedule/tile_order.cuh"

namespace zoo {

using PlainTile =
    Fp8b128Tile<Variant::TOKENS, Variant::WEIGHTS, Variant::STAGES, Variant::WARPGROUPS, Variant::SWAPPED, Variant::OVERLAPPED>;
using Tile = std::conditional_t<Variant::MOVED, MovingTile<PlainTile>, GatheringTile<PlainTile>>;
using Way = ZOO_WAY<Tile>;
using Order = GroupedOrder<Tile, Variant::BAND, OneAfterTheOther>;
constexpr int DYNAMIC_SHARED_BYTES = sizeof(Way);
using D = ElementsOfD<Variant>::Type;

}  // namespace zoo

extern "C" __global__ void __launch_bounds__(zoo::Tile::THREADS, Variant::CTAS)
    ZOO_KERNEL(const __grid_constant__ zoo::TensorMap moved, const __grid_constant__ zoo::TensorMap b, uint8_t* workspace,
               const uint8_t* a, const uint8_t* a_scale, const uint8_t* b_scale, int a_scale_is_ue8m0, int b_scale_is_ue8m0,
               uint8_t* d, const int* index, const int* offsets, int groups, int M, int rows, int N, int K, int64_t a_stride,
               int64_t a_scale_row, int64_t a_scale_block, int64_t b_scale_group, int64_t b_scale_row, int64_t b_scale_block,
               int64_t d_stride, const float* row_scale, int d_is_f16) {
    extern __shared__ __align__(1024) uint8_t memory[];
    const zoo::Scales a_scales{a_scale, a_scale_row, a_scale_block, rows, a_scale_is_ue8m0 != 0};
    const zoo::Scales b_scales{b_scale, b_scale_row, b_scale_block, zoo::tiles_of(N, zoo::SCALE_BLOCK), b_scale_is_ue8m0 != 0};
    const zoo::GatheredRows source{a, a_stride, rows, K, index};
    const zoo::Scaled<zoo::Matrix<zoo::D>> target{zoo::matrix_of<zoo::D>(d, d_stride, N, d_is_f16), row_scale};
    const zoo::Order order({offsets}, groups, N, zoo::tiles_of(K, zoo::SCALE_BLOCK));
    zoo::Way& way = *reinterpret_cast<zoo::Way*>(memory);
    if constexpr (Variant::MOVED) {
        const zoo::MoverSpace space(workspace, M, K);
        const zoo::Operands<zoo::Tile> moved_operands{moved, b, space.moved_scales(M), b_scales, 0, b_scale_group, 0, N};
        constexpr int AHEAD = 2 * Variant::BAND * Variant::TOKENS;
        const zoo::MovedOperands<zoo::Tile> operands{moved_operands, source, a_scales, offsets + groups - 1, space, AHEAD};
        way.run(order, operands, target);
    } else {
        way.run(order, zoo::GatheredOperands<zoo::Tile>{source, b, a_scales, b_scales, b_scale_group, N}, target);
    }
}
