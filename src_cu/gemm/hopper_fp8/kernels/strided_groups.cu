// gemm.fp8b128.m_grouped_masked where groups of A or D are not slots one after the other. Its files:
//
//     schedule/grouped_schedule.cuh           Which tile of which group does a CTA compute next?
//     hopper_fp8/strided_groups.cuh           Where are the matrices of a group?
//     hopper_fp8/pipeline/many_tokens.cuh     Which warps do what, and when? Or, as the table chooses:
//     hopper_fp8/pipeline/few_tokens.cuh      the same for few tokens; FewTokens is unused
//
// groups.cu lists the files that these include.

#include "gemm/hopper_fp8/pipeline/few_tokens.cuh"
#include "gemm/hopper_fp8/pipeline/many_tokens.cuh"
#include "gemm/hopper_fp8/strided_groups.cuh"
#include "gemm/schedule/grouped_schedule.cuh"

namespace zoo {

using Tile =
    Fp8Tile<Variant::TOKENS, Variant::WEIGHTS, Variant::STAGES, Variant::WARPGROUPS, Variant::SWAPPED, Variant::OVERLAPPED>;
using Pipeline = ZOO_PIPELINE<Tile>;
constexpr int DYNAMIC_SHARED_BYTES = sizeof(Pipeline);

using D = OutputElement<Variant>::Type;

}  // namespace zoo

extern "C" __global__ void __launch_bounds__(zoo::Tile::THREADS, Variant::CTAS) ZOO_KERNEL(ZOO_PARAMETERS) {
    extern __shared__ __align__(1024) uint8_t memory[];
    const zoo::ScaleMatrix a_scales{a_scale, a_scale_row, a_scale_block, slot_rows, a_scale_is_ue8m0 != 0};
    const zoo::ScaleMatrix b_scales{b_scale, b_scale_row, b_scale_block, zoo::ceil_div(N, zoo::SCALE_BLOCK),
                                    b_scale_is_ue8m0 != 0};
    const zoo::StridedGroupOperands<zoo::Tile> operands{{a, b, a_scales, b_scales, a_scale_group, b_scale_group, slot_rows, N}};
    const zoo::StridedGroupOutput<zoo::D> target{zoo::output_matrix<zoo::D>(d, d_stride, N, d_is_f16), d_group, slot_rows,
                                                 row_scale};
    const zoo::GroupedSchedule<zoo::Tile, Variant::BAND, zoo::MaskedGroupRows> schedule({group_rows, slot_rows}, groups, N,
                                                                                        blocks);
    reinterpret_cast<zoo::Pipeline*>(memory)->run(schedule, operands, target);
}
