// gemm.fp8b128.m_grouped_contiguous: the rows of A lie group after group, each group is multiplied by weights of its own. As
// dense, many tokens or few, but for the order: tiles begin where groups begin, wherever that is, and end where they end. Where that
// is, either offsets say, one for each group, or m_indices, one for each row.

#include <type_traits>

#include "gemm/pipeline/few_tokens.cuh"
#include "gemm/pipeline/many_tokens.cuh"
#include "gemm/epilogue/sum.cuh"
#include "gemm/schedule/tile_order.cuh"
#include "gemm/pipeline/tiles_ahead.cuh"

namespace zoo {

using Tile =
    Fp8b128Tile<Variant::TOKENS, Variant::WEIGHTS, Variant::STAGES, Variant::WARPGROUPS, Variant::SWAPPED, Variant::OVERLAPPED>;
using Many = std::conditional_t<goes_ahead<Variant>, TilesAhead<Tile>, ManyTokens<Tile>>;
using Way = std::conditional_t<Variant::SWAPPED, FewTokensInTurn<Tile>, Many>;
using OffsetsOrder = GroupedOrder<Tile, Variant::BAND, OneAfterTheOther>;
using IndicesOrder = IndexedOrder<Tile, Variant::BAND>;
constexpr int DYNAMIC_SHARED_BYTES = sizeof(Way);

constexpr bool SCALES = Variant::SWAPPED || Tile::WAVES == 1;  // with two waves sums do not stay in registers
using D = ElementsOfD<Variant>::Type;

}  // namespace zoo

extern "C" __global__ void __launch_bounds__(zoo::Tile::THREADS, Variant::CTAS)
    ZOO_KERNEL(const __grid_constant__ zoo::TensorMap a, const __grid_constant__ zoo::TensorMap b, const uint8_t* a_scale,
               const uint8_t* b_scale, int a_scale_is_ue8m0, int b_scale_is_ue8m0, uint8_t* d, const int* offsets,
               const int* m_indices, int groups, int M, int N, int blocks, int64_t a_scale_row, int64_t a_scale_block,
               int64_t b_scale_group, int64_t b_scale_row, int64_t b_scale_block, int64_t d_stride, const float* row_scale,
               int d_is_f16) {
    extern __shared__ __align__(1024) uint8_t memory[];
    const zoo::Scales a_scales{a_scale, a_scale_row, a_scale_block, M, a_scale_is_ue8m0 != 0};
    const zoo::Scales b_scales{b_scale, b_scale_row, b_scale_block, zoo::tiles_of(N, zoo::SCALE_BLOCK), b_scale_is_ue8m0 != 0};
    const zoo::Operands<zoo::Tile> operands{a, b, a_scales, b_scales, 0, b_scale_group, 0, N};
    const zoo::Scaled<zoo::Matrix<zoo::D>> target{zoo::matrix_of<zoo::D>(d, d_stride, N, d_is_f16),
                                                  zoo::SCALES ? row_scale : nullptr};
    zoo::Way& way = *reinterpret_cast<zoo::Way*>(memory);
    if constexpr (Variant::INDEXED)
        way.run(zoo::IndicesOrder(m_indices, M, N, blocks), operands, target);
    else
        way.run(zoo::OffsetsOrder({offsets}, groups, N, blocks), operands, target);
}
