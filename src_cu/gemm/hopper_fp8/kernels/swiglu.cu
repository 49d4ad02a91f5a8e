// gemm.fp8b128.{dense, m_grouped_contiguous, m_grouped_masked}.{swiglu, swiglu_fp8b128}, the first GEMM of an MoE layer: activation(A gates^T) *
// (A ups^T), as bf16, or quantised as the second GEMM reads it. Variants with ANY_ACTIVATION have every activation and a bias, others silu.
//
// Many tokens: a warpgroup multiplies 128 gates and 128 ups in two passes, or 64 gates and 64 ups in one pass. Few tokens: half of the warps multiply
// gates, the others ups. One scale of fp8b128 covers 128 columns of the result: a tile has all of them, or each of PARTS CTAs of a cluster has a part.
// Read the files in this order:
//
//     schedule/grouped_schedule.cuh           Which tile of which group does a CTA compute next?
//     schedule/tile_schedule.cuh              Which tile does a CTA compute next?
//     hopper_fp8/tile.cuh                     What is in a stage, and which warps arrive at its barriers?
//     hopper_fp8/operands.cuh                 Where do elements and scales come from?
//     hopper_fp8/producer.cuh                 How do producer warps fill the stages?
//     hopper_fp8/mainloop.cuh                 How do math warps multiply and promote K blocks?
//     hopper_fp8/gate_up_weights.cuh          Which rows of B are a tile's gates and ups? Which part of a scale block does a CTA have?
//     hopper_fp8/swiglu_epilogue.cuh          How do sums of gates and ups become the result?
//     epilogue/{activation, branchless_fp8b128}.cuh     What is h, and how are scales computed?
//     hopper_fp8/{store_rows, store_reduced}.cuh     How are rows stored?
//
// The table chooses the pipeline of a tile:
//
//     hopper_fp8/pipeline/many_tokens.cuh     Which warps do what, and when?
//     hopper_fp8/pipeline/tiles_in_pairs.cuh  The same, where the two CTAs of a cluster exchange magnitudes.
//     hopper_fp8/pipeline/few_tokens.cuh      The same for few tokens.

#include <type_traits>

#include "gemm/hopper_fp8/pipeline/few_tokens.cuh"
#include "gemm/hopper_fp8/gate_up_weights.cuh"
#include "gemm/hopper_fp8/pipeline/many_tokens.cuh"
#include "gemm/hopper_fp8/swiglu_epilogue.cuh"
#include "gemm/schedule/grouped_schedule.cuh"

namespace zoo {

using BaseTile = Fp8Tile<Variant::TOKENS, Variant::WEIGHTS, Variant::STAGES, Variant::WARPGROUPS, Variant::SWAPPED,
                         Variant::OVERLAPPED, GATES_PER_SCALE<Variant::WEIGHTS>, Variant::SWAPPED ? 1 : Variant::WEIGHTS / 128>;
enum class Grouping { dense, m_grouped_contiguous, m_grouped_masked, m_indices };  // m_grouped_contiguous also serves slots
enum class ResultType { bf16, fp8b128, by_launch };  // by_launch: the launch chooses; tiles have whole scale blocks

constexpr auto GROUPING = Grouping(Variant::GROUPING);
constexpr auto RESULT = ResultType(Variant::RESULT);
constexpr int PARTS = Variant::PARTS;  // CTAs that share a scale block of the result
using Tile = TileOfCluster<BaseTile, Variant::SPLITS * PARTS>;
static_assert(PARTS == (RESULT == ResultType::bf16 ? 1 : ResultScaleBlock<Tile>::PARTS));
using Result = std::conditional_t<PARTS == 1, ResultTile<Tile>, ResultScaleBlock<Tile>>;
using Pipeline = ZOO_PIPELINE<Tile>;
constexpr int DYNAMIC_SHARED_BYTES = sizeof(Pipeline);
constexpr bool PAIRS = std::is_same_v<Pipeline, TilesInPairs<Tile>>;
static_assert(PARTS == 1 || OneTilePerCluster<Pipeline> || PAIRS);
static_assert(!(PAIRS && GROUPING == Grouping::m_indices), "IndexedSchedule may advance by several tiles in a step");

// Many tokens of one matrix make tiles of even heights.
using TokenOperands = std::conditional_t<OneTilePerCluster<Pipeline>, FewTokenOperands<Tile>,
                                         std::conditional_t<GROUPING == Grouping::dense, EvenTileOperands<Tile>, Operands<Tile>>>;

template <class OneCta>
using OptionalPairSchedule = std::conditional_t<PAIRS, PairSchedule<OneCta, Tile>, OneCta>;

__device__ __forceinline__ auto schedule_of(const int* group_rows, int groups, int rows, int slot_rows, int columns, int blocks) {
    if constexpr (GROUPING == Grouping::m_grouped_contiguous)
        return OptionalPairSchedule<GroupedSchedule<Result, Variant::BAND, GroupRows>>(GroupRows{group_rows, slot_rows}, groups,
                                                                                       columns, blocks);
    else if constexpr (GROUPING == Grouping::m_indices)
        return IndexedSchedule<Result, Variant::BAND>(group_rows, rows, columns, blocks);
    else if constexpr (OneTilePerCluster<Pipeline>)
        return std::conditional_t<PARTS == 1, SplitKSchedule<Result, Variant::SPLITS>, SplitKPartSchedule<Tile, Variant::SPLITS>>(
            rows, columns, blocks);
    else
        return OptionalPairSchedule<DenseSchedule<Result, Variant::BAND, EvenTiles<Result>>>(rows, columns, blocks);
}

}  // namespace zoo

//     group_rows      ends of groups, or rows in use of each slot, or the group of each row
//     rows            rows of A, or of a slot
//     slot_rows       rows of a slot, else 0
//     columns         columns of the result: half the rows of B
//     gate_step       rows of B from one gate to the next
//     gate_to_up      rows of B from a gate to its up
//     scales          scales of an fp8b128 result, null for bf16
extern "C" __global__ void __launch_bounds__(zoo::Tile::THREADS, Variant::CTAS) ZOO_KERNEL(ZOO_PARAMETERS) {
    ZOO_ABSENT_PARAMETERS
    extern __shared__ __align__(1024) uint8_t memory[];
    const int rows_of_slot = zoo::GROUPING == zoo::Grouping::m_grouped_contiguous ? slot_rows : 0;
    const zoo::ScaleMatrix a_scales{a_scale, a_scale_row, a_scale_block, rows, a_scale_is_ue8m0 != 0};
    const zoo::ScaleMatrix b_scales{b_scale, b_scale_row, b_scale_block, zoo::ceil_div(2 * columns, zoo::SCALE_BLOCK),
                                    b_scale_is_ue8m0 != 0};
    const zoo::GateUpOperands<zoo::Tile, zoo::TokenOperands> operands{
        {a, b, a_scales, b_scales, a_scale_group, b_scale_group, rows_of_slot, 0}, gate_step, gate_to_up};
    const auto schedule = zoo::schedule_of(group_rows, groups, rows, rows_of_slot, columns, blocks);
    zoo::Pipeline& pipeline = *reinterpret_cast<zoo::Pipeline*>(memory);
    if constexpr (zoo::RESULT != zoo::ResultType::bf16) {
        using Out = std::conditional_t<zoo::RESULT == zoo::ResultType::by_launch, zoo::OutputByLaunch, zoo::Fp8Output>;
        const zoo::Fp8Output out{d, d_stride, columns, scales, scales_group, scales_row, scales_block, rows_of_slot, {pow2 != 0}};
        zoo::SwigluOutput<Out> target{{out}, row_scale};
        target.choose(activation, limit, bias, bias_is_bf16, interleaved);
        pipeline.run(schedule, operands, target);
    } else {
        zoo::SwigluOutput<zoo::Bf16Output> target{{{d, d_stride, columns}}, row_scale};
        target.choose(activation, limit, bias, bias_is_bf16, interleaved);
        pipeline.run(schedule, operands, target);
    }
}
