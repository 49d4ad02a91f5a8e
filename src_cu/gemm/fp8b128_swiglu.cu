// gemm.fp8b128.<grouping>.swiglu and .swiglu_fp8b128, the first product of an MoE layer: silu(A gates^T) * (A ups^T), as bf16 or
// quantised as the second product wants it. In all groupings as without an epilogue, but for
//
//     gated.cuh          B: a tile takes as many gates as ups, 128, 64 or 32; which CTA has which
//     store_swiglu.cuh   from the sums to the result
//
// Many tokens: 128 gates and 128 ups are two waves side by side for the same 64 rows; 64 and 64 one wave. Few tokens: half of
// the warps have gates, the others ups. To be quantised, 128 columns of the result must meet: a tile has them, or CTAs of a
// cluster have PARTS of them each (tiles_in_pairs.cuh; store_swiglu.cuh, add_up_and_store).

#include <type_traits>

#include "gemm/pipeline/few_tokens.cuh"
#include "gemm/load/gated.cuh"
#include "gemm/pipeline/many_tokens.cuh"
#include "gemm/epilogue/store_swiglu.cuh"
#include "gemm/schedule/ends_or_places.cuh"

namespace zoo {

using OwnTile = Fp8b128Tile<Variant::TOKENS, Variant::WEIGHTS, Variant::STAGES, Variant::WARPGROUPS, Variant::SWAPPED,
                            Variant::OVERLAPPED, GATES_A_SCALE<Variant::WEIGHTS>, Variant::SWAPPED ? 1 : Variant::WEIGHTS / 128>;
constexpr int PARTS = Variant::PARTS;  // a cluster's CTAs that share a block of the result
using Tile = TileMadeTogether<OwnTile, Variant::SPLITS * PARTS>;
static_assert(PARTS == (Variant::QUANTISED ? BlockOfResult<Tile>::PARTS : 1));
using Result = std::conditional_t<PARTS == 1, TileOfResult<Tile>, BlockOfResult<Tile>>;
using Way = ZOO_WAY<Tile>;
constexpr int DYNAMIC_SHARED_BYTES = sizeof(Way);
constexpr bool PAIRS = std::is_same_v<Way, TilesInPairs<Tile>>;
static_assert(PARTS == 1 || OfOneTile<Way> || PAIRS);
static_assert(!(PAIRS && Variant::GROUPING == 3), "an order by m_indices may go on by several tiles in one step");

// Of one matrix of many tokens tiles are all about as high.
using From = std::conditional_t<OfOneTile<Way>, FewOperands<Tile>,
                                std::conditional_t<Variant::GROUPING == 0, EvenOperands<Tile>, Operands<Tile>>>;

template <class Order>
using Paired = std::conditional_t<PAIRS, OrderOfPairs<Order, Tile>, Order>;

// QUANTISED: 0 no, 1 yes, 2 as the launch says, in tiles that have whole blocks of the result.
// GROUPING: 0 dense, 1 m_grouped_contiguous by offsets or m_grouped_masked, 3 m_grouped_contiguous by m_indices.
__device__ __forceinline__ auto order_of(const int* places, int groups, int rows, int rows_of_place, int columns, int blocks) {
    if constexpr (Variant::GROUPING == 1)
        return Paired<GroupedOrder<Result, Variant::BAND, EndsOrPlaces>>(EndsOrPlaces{places, rows_of_place}, groups, columns,
                                                                         blocks);
    else if constexpr (Variant::GROUPING == 3)
        return IndexedOrder<Result, Variant::BAND>(places, rows, columns, blocks);
    else if constexpr (OfOneTile<Way>)
        return std::conditional_t<PARTS == 1, SplitOrder<Result, Variant::SPLITS>, PartedSplitOrder<Tile, Variant::SPLITS>>(
            rows, columns, blocks);
    else
        return Paired<DenseOrder<Result, Variant::BAND, EvenTiles<Result>>>(rows, columns, blocks);
}

}  // namespace zoo

// rows: of A, or of a group's place, as `place` is where groups have one, and else 0. The five before it are for a quantised result; where it
// is not, `scales` is null.
extern "C" __global__ void __launch_bounds__(zoo::Tile::THREADS, Variant::CTAS)
    ZOO_KERNEL(const __grid_constant__ zoo::TensorMap a, const __grid_constant__ zoo::TensorMap b, const uint8_t* a_scale,
               const uint8_t* b_scale, int a_scale_is_ue8m0, int b_scale_is_ue8m0, const float* row_scale, uint8_t* d,
               const int* places, int groups, int rows, int columns, int blocks, int gate_step, int gate_to_up,
               int64_t a_scale_group, int64_t a_scale_row, int64_t a_scale_block, int64_t b_scale_group, int64_t b_scale_row,
               int64_t b_scale_block, int64_t d_stride, float* scales, int64_t scales_group, int64_t scales_row,
               int64_t scales_block, int64_t pow2, int place) {
    extern __shared__ __align__(1024) uint8_t memory[];
    const int rows_of_place = Variant::GROUPING == 1 ? place : 0;
    const zoo::Scales a_scales{a_scale, a_scale_row, a_scale_block, rows, a_scale_is_ue8m0 != 0};
    const zoo::Scales b_scales{b_scale, b_scale_row, b_scale_block, zoo::tiles_of(2 * columns, zoo::SCALE_BLOCK),
                               b_scale_is_ue8m0 != 0};
    const zoo::GatedOperands<zoo::Tile, zoo::From> operands{
        {a, b, a_scales, b_scales, a_scale_group, b_scale_group, rows_of_place, 0}, gate_step, gate_to_up};
    const auto order = zoo::order_of(places, groups, rows, rows_of_place, columns, blocks);
    zoo::Way& way = *reinterpret_cast<zoo::Way*>(memory);
    if constexpr (Variant::QUANTISED != 0) {
        using Out = std::conditional_t<Variant::QUANTISED == 2, zoo::EitherMatrix, zoo::QuantisedMatrix>;
        const zoo::QuantisedMatrix out{d,          d_stride,     columns,       scales,     scales_group,
                                       scales_row, scales_block, rows_of_place, {pow2 != 0}};
        way.run(order, operands, zoo::Activated<Out>{{out}, row_scale});
    } else {
        way.run(order, operands, zoo::Activated<zoo::RoundedMatrix>{{{d, d_stride, columns}}, row_scale});
    }
}
