// gemm.fp8b128.m_grouped_gather.{swiglu, swiglu_fp8b128}: the first GEMM of an MoE layer on tokens in their own sequence. Row i of the result
// is made of row index[i] of A. Threads gather the rows for every tile, or a warp gathers them once to the workspace. The launch chooses the
// result: bf16, or e4m3 and scales.
//
// A tile has 128 gates and 128 ups: all columns of a scale block of the result. Tiles of 128 weights would gather rows twice as often. Its files:
//
//     schedule/grouped_schedule.cuh           Which tile of which group does a CTA compute next?
//     schedule/tile_schedule.cuh              Which tile does a CTA compute next?
//     hopper_fp8/tile.cuh                     What is in a stage, and which warps arrive at its barriers?
//     hopper_fp8/operands.cuh                 Where do elements and scales come from?
//     hopper_fp8/producer.cuh                 How do producer warps fill the stages?
//     hopper_fp8/mainloop.cuh                 How do math warps multiply and promote K blocks?
//     hopper_fp8/gate_up_weights.cuh          Which rows of B are a tile's gates and ups?
//     hopper_fp8/gather/gathered_rows.cuh     How do threads gather rows into stages?
//     hopper_fp8/gather/gather_to_workspace.cuh     Or how does a warp gather rows and their scales to the workspace?
//     hopper_fp8/swiglu_epilogue.cuh          How do sums of gates and ups become the result?
//     epilogue/{activation, branchless_fp8b128}.cuh     What is h, and how are scales computed?
//     hopper_fp8/{store_rows, store_reduced}.cuh     How are rows stored?
//     hopper_fp8/pipeline/many_tokens.cuh     Which warps do what, and when? tiles_in_pairs.cuh is unused.
//     hopper_fp8/pipeline/few_tokens.cuh      The same for few tokens; FewTokens is unused

#include "gemm/hopper_fp8/pipeline/few_tokens.cuh"
#include "gemm/hopper_fp8/gate_up_weights.cuh"
#include "gemm/hopper_fp8/gather/gather_to_workspace.cuh"
#include "gemm/hopper_fp8/gather/gathered_rows.cuh"
#include "gemm/hopper_fp8/pipeline/many_tokens.cuh"
#include "gemm/hopper_fp8/swiglu_epilogue.cuh"
#include "gemm/schedule/grouped_schedule.cuh"

namespace zoo {

using BaseTile = Fp8Tile<Variant::TOKENS, Variant::WEIGHTS, Variant::STAGES, Variant::WARPGROUPS, Variant::SWAPPED,
                         Variant::OVERLAPPED, GATES_PER_SCALE<Variant::WEIGHTS>, Variant::SWAPPED ? 1 : 2>;
#ifdef ZOO_WITH_WORKSPACE
using Tile = GatherToWorkspaceTile<BaseTile>;
using Rows = WorkspaceOperands<Tile>;
#else
using Tile = GatherTile<BaseTile>;
using Rows = GatheredOperands<Tile>;
#endif
using Result = ResultTile<Tile>;
static_assert(Result::WEIGHTS == SCALE_BLOCK, "a tile has whole scale blocks of the result");
using Pipeline = ZOO_PIPELINE<Tile>;
using Schedule = GroupedSchedule<Result, Variant::BAND, ContiguousGroupRows>;
constexpr int DYNAMIC_SHARED_BYTES = sizeof(Pipeline);

}  // namespace zoo

//     M             rows of the result
//     rows          rows of A
//     columns       columns of the result: half the rows of B
//     gate_step     rows of B from one gate to the next
//     gate_to_up    rows of B from a gate to its up
//     moved         the gathered rows in the workspace
//     scales        scales of an fp8b128 result, null for bf16
extern "C" __global__ void __launch_bounds__(zoo::Tile::THREADS, 1) ZOO_KERNEL(ZOO_PARAMETERS) {
    ZOO_ABSENT_PARAMETERS
    extern __shared__ __align__(1024) uint8_t memory[];
    const zoo::ScaleMatrix a_scales{a_scale, a_scale_row, a_scale_block, rows, a_scale_is_ue8m0 != 0};
    const zoo::ScaleMatrix b_scales{b_scale, b_scale_row, b_scale_block, zoo::ceil_div(2 * columns, zoo::SCALE_BLOCK),
                                    b_scale_is_ue8m0 != 0};
    const zoo::GatheredRows source{a, a_stride, rows, K, index};
#ifdef ZOO_WITH_WORKSPACE
    const zoo::GatherWorkspace space(workspace, M, K);
    constexpr int AHEAD = 2 * Variant::BAND * Variant::TOKENS;
    const zoo::Operands<zoo::Tile> workspace_operands{moved, b, space.scale_matrix(M), b_scales, 0, b_scale_group, 0, 0};
    const zoo::Rows from{workspace_operands, source, a_scales, offsets + groups - 1, space, AHEAD};
#else
    const zoo::Rows from{source, b, a_scales, b_scales, b_scale_group, 0};
#endif
    const zoo::GateUpOperands<zoo::Tile, zoo::Rows> operands{from, gate_step, gate_to_up};
    const zoo::Fp8Output matrix{d, result_stride, columns, scales, 0, scales_row, scales_block, 0, {pow2 != 0}};
    const zoo::Schedule schedule({offsets}, groups, columns, zoo::ceil_div(K, zoo::SCALE_BLOCK));
    zoo::Pipeline& pipeline = *reinterpret_cast<zoo::Pipeline*>(memory);
    zoo::SwigluOutput<zoo::OutputByLaunch> target{{matrix}, row_scale};
    target.choose(activation, limit, bias, bias_is_bf16, interleaved);
    pipeline.run(schedule, operands, target);
}
