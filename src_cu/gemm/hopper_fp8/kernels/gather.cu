// gemm.fp8b128.m_grouped_gather: as m_grouped_contiguous, but row i of D is the product of row index[i] of A. Tokens need not be permuted, nor
// copied for each of their experts. Producer warps gather rows for every tile, or once to the workspace (USES_WORKSPACE). Its files:
//
//     schedule/grouped_schedule.cuh           Which tile of which group does a CTA compute next?
//     schedule/tile_schedule.cuh              Which tile does a CTA compute next?
//     hopper_fp8/tile.cuh                     What is in a stage, and which warps arrive at its barriers?
//     hopper_fp8/operands.cuh                 Where do elements and scales come from?
//     hopper_fp8/producer.cuh                 How do producer warps fill the stages?
//     hopper_fp8/mainloop.cuh                 How do math warps multiply and promote K blocks?
//     hopper_fp8/gather/gathered_rows.cuh     How do threads gather rows into stages?
//     hopper_fp8/gather/gather_to_workspace.cuh     Or how does a warp gather rows to the workspace?
//     hopper_fp8/store_rows.cuh               How do sums become rows of D?
//     hopper_fp8/pipeline/many_tokens.cuh     Which warps do what, and when?
//     hopper_fp8/pipeline/few_tokens.cuh      The same for few tokens, with store_reduced.cuh; FewTokens is unused

#include <type_traits>

#include "gemm/hopper_fp8/pipeline/few_tokens.cuh"
#include "gemm/hopper_fp8/gather/gathered_rows.cuh"
#include "gemm/hopper_fp8/pipeline/many_tokens.cuh"
#include "gemm/hopper_fp8/gather/gather_to_workspace.cuh"
#include "gemm/hopper_fp8/store_rows.cuh"
#include "gemm/schedule/grouped_schedule.cuh"

namespace zoo {

using BaseTile =
    Fp8Tile<Variant::TOKENS, Variant::WEIGHTS, Variant::STAGES, Variant::WARPGROUPS, Variant::SWAPPED, Variant::OVERLAPPED>;
using Tile = std::conditional_t<Variant::USES_WORKSPACE, GatherToWorkspaceTile<BaseTile>, GatherTile<BaseTile>>;
using Pipeline = ZOO_PIPELINE<Tile>;
using Schedule = GroupedSchedule<Tile, Variant::BAND, ContiguousGroupRows>;
constexpr int DYNAMIC_SHARED_BYTES = sizeof(Pipeline);
using D = OutputElement<Variant>::Type;

}  // namespace zoo

extern "C" __global__ void __launch_bounds__(zoo::Tile::THREADS, Variant::CTAS) ZOO_KERNEL(ZOO_PARAMETERS) {
    extern __shared__ __align__(1024) uint8_t memory[];
    const zoo::ScaleMatrix a_scales{a_scale, a_scale_row, a_scale_block, rows, a_scale_is_ue8m0 != 0};
    const zoo::ScaleMatrix b_scales{b_scale, b_scale_row, b_scale_block, zoo::ceil_div(N, zoo::SCALE_BLOCK),
                                    b_scale_is_ue8m0 != 0};
    const zoo::GatheredRows source{a, a_stride, rows, K, index};
    const zoo::ScaleRows<zoo::OutputMatrix<zoo::D>> target{zoo::output_matrix<zoo::D>(d, d_stride, N, d_is_f16), row_scale};
    const zoo::Schedule schedule({offsets}, groups, N, zoo::ceil_div(K, zoo::SCALE_BLOCK));
    zoo::Pipeline& pipeline = *reinterpret_cast<zoo::Pipeline*>(memory);
    if constexpr (Variant::USES_WORKSPACE) {
        const zoo::GatherWorkspace space(workspace, M, K);
        const zoo::Operands<zoo::Tile> workspace_operands{moved, b, space.scale_matrix(M), b_scales, 0, b_scale_group, 0, N};
        constexpr int AHEAD = 2 * Variant::BAND * Variant::TOKENS;
        const zoo::WorkspaceOperands<zoo::Tile> operands{workspace_operands,   source, a_scales,
                                                         offsets + groups - 1, space,  AHEAD};
        pipeline.run(schedule, operands, target);
    } else {
        pipeline.run(schedule, zoo::GatheredOperands<zoo::Tile>{source, b, a_scales, b_scales, b_scale_group, N}, target);
    }
}
