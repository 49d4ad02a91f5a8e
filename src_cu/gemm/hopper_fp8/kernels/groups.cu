// gemm.fp8b128.m_grouped_contiguous and m_grouped_masked: each group of rows of A is multiplied by weights of its own. Tiles begin and end where
// groups begin and end. `group_rows` holds offsets of contiguous groups, or the valid rows of each slot, or, INDEXED, the group of each row.
// Its files:
//
//     schedule/grouped_schedule.cuh           Which tile of which group does a CTA compute next?
//     schedule/tile_schedule.cuh              Which tile does a CTA compute next?
//     hopper_fp8/tile.cuh                     What is in a stage, and which warps arrive at its barriers?
//     hopper_fp8/operands.cuh                 Where do elements and scales come from?
//     hopper_fp8/producer.cuh                 How do producer warps fill the stages?
//     hopper_fp8/mainloop.cuh                 How do math warps multiply and promote K blocks?
//     hopper_fp8/store_rows.cuh               How do sums become rows of D?
//     hopper_fp8/pipeline/many_tokens.cuh     Which warps do what, and when? Or, as the table chooses:
//     hopper_fp8/pipeline/overlapped_epilogue.cuh     the same, where the tensor cores multiply the next tile while D is stored
//     hopper_fp8/pipeline/few_tokens.cuh      the same for few tokens, with store_reduced.cuh; FewTokens is unused

#include "gemm/hopper_fp8/pipeline/few_tokens.cuh"
#include "gemm/hopper_fp8/pipeline/many_tokens.cuh"
#include "gemm/hopper_fp8/store_rows.cuh"
#include "gemm/hopper_fp8/pipeline/overlapped_epilogue.cuh"
#include "gemm/schedule/grouped_schedule.cuh"

namespace zoo {

using Tile =
    Fp8Tile<Variant::TOKENS, Variant::WEIGHTS, Variant::STAGES, Variant::WARPGROUPS, Variant::SWAPPED, Variant::OVERLAPPED>;
using Pipeline = ZOO_PIPELINE<Tile>;
constexpr int DYNAMIC_SHARED_BYTES = sizeof(Pipeline);

using D = OutputElement<Variant>::Type;

__device__ __forceinline__ auto schedule_of(const int* group_rows, int groups, int rows, int slot_rows, int N, int blocks) {
    if constexpr (Variant::INDEXED)
        return IndexedSchedule<Tile, Variant::BAND>(group_rows, rows, N, blocks);
    else
        return GroupedSchedule<Tile, Variant::BAND, GroupRows>({group_rows, slot_rows}, groups, N, blocks);
}

}  // namespace zoo

//     group_rows       ends of groups, or rows in use of each slot, or the group of each row
//     rows             rows of A, or of a slot
//     slot_rows        rows of a slot, else 0
//     blocks           number of K blocks
//     a_scale_group    bytes from a slot's scales to the next slot's, else 0
extern "C" __global__ void __launch_bounds__(zoo::Tile::THREADS, Variant::CTAS) ZOO_KERNEL(ZOO_PARAMETERS) {
    extern __shared__ __align__(1024) uint8_t memory[];
    const zoo::ScaleMatrix a_scales{a_scale, a_scale_row, a_scale_block, rows, a_scale_is_ue8m0 != 0};
    const zoo::ScaleMatrix b_scales{b_scale, b_scale_row, b_scale_block, zoo::ceil_div(N, zoo::SCALE_BLOCK),
                                    b_scale_is_ue8m0 != 0};
    const zoo::Operands<zoo::Tile> operands{
        a, b, a_scales, b_scales, Variant::INDEXED ? 0 : a_scale_group, b_scale_group, Variant::INDEXED ? 0 : slot_rows, N};
    const zoo::ScaleRows<zoo::OutputMatrix<zoo::D>> target{zoo::output_matrix<zoo::D>(d, d_stride, N, d_is_f16), row_scale};
    const auto schedule = zoo::schedule_of(group_rows, groups, rows, slot_rows, N, blocks);
    reinterpret_cast<zoo::Pipeline*>(memory)->run(schedule, operands, target);
}
