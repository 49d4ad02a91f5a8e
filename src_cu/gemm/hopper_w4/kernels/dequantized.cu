// gemm.{fp8_nvfp4, fp8_mxfp4}.<grouping> for many tokens: as hopper_w4/kernels/packed.cu, but a warpgroup dequantizes weights to shared memory, once
// for 256 tokens. Two warpgroups multiply, and wgmma reads both operands from shared memory. In cubins with a workspace, all CTAs together dequantize
// all weights once, into the workspace, and every CTA copies its weights from there. Read the files in this order:
//
//     gemm/schedule/tile_schedule.cuh, grouped_schedule.cuh    which tile does a CTA compute next?
//     hopper_w4/schedule.cuh           which schedule does a variant use?
//     hopper_w4/operands.cuh           where are A, B and the scales in global memory, and who copies them?
//     hopper_w4/weights/packed.cuh     how do packed weights become e4m3?
//     hopper_w4/dequantized/tile.cuh   what is where in shared memory, and who arrives at which barrier?
//     hopper_w4/dequantized/by_one_warpgroup.cuh    how does a warpgroup dequantize the CTA's weights?
//     hopper_w4/dequantized/ticket_queue.cuh        how do CTAs share work in global memory?
//     hopper_w4/dequantized/to_workspace.cuh        how do all CTAs dequantize all weights once?
//     hopper_w4/epilogue.cuh           how do sums become D?
//     hopper_w4/dequantized/pipeline.cuh            which warp does what?

#include <cstdint>

#include "gemm/hopper_w4/dequantized/pipeline.cuh"
#include "gemm/hopper_w4/schedule.cuh"

namespace zoo {

template <template <int> class Dequantizes>
using TileOf = DequantizedTile<WeightFormat(Variant::FORMAT), Variant::STAGES, Promotion(Variant::PROMOTION), Dequantizes>;
#ifdef ZOO_WITH_WORKSPACE
using Tile = TileOf<DequantizesOnce>;
#else
using Tile = TileOf<DequantizesInCta>;
#endif
using Schedule = ScheduleFor<Variant, Tile>;
using Pipeline = DequantizedPipeline<Tile, Schedule>;
constexpr int DYNAMIC_SHARED_BYTES = sizeof(Pipeline);

}  // namespace zoo

// Parameters as in packed.cu. a_block_scale may be null where sums are not promoted every 128 columns of K.
extern "C" __global__ void __launch_bounds__(zoo::Tile::THREADS, Variant::CTAS) ZOO_KERNEL(ZOO_PARAMETERS) {
    ZOO_ABSENT_PARAMETERS
    extern __shared__ __align__(1024) uint8_t memory[];
#ifdef ZOO_WITH_WORKSPACE
    const auto scales =
        zoo::token_scales<zoo::Tile>(a_block_scale, a_scale_row, a_scale_block, a_scale_group, zoo::ceil_div(chunks, 2));
#else  // token_scales() would change cubins
    const zoo::TokenScales scales{a_block_scale, a_scale_row, a_scale_block, a_scale_group, zoo::ceil_div(chunks, 2)};
#endif
    const zoo::FourBitOperands<zoo::Tile> operands{a, {b, weight_parts, chunks}, box_rows, scales};
    const zoo::GatheredRows gathered{a_first, a_stride, a_rows, chunks * zoo::CHUNK, index};
    const zoo::FourBitResult<zoo::Tile::FORMAT> result{d,      d_stride, d_type,  N,    a_scale,           nullptr,
                                                       a_rows, alpha,    largest, bias, bias_is_bf16 != 0, row_scale};
#ifdef ZOO_WITH_WORKSPACE
    const int blocks = zoo::ceil_div(chunks, zoo::PROMOTED_CHUNKS);
    const auto schedule = [&] { return zoo::schedule_of<zoo::Schedule>(ends_or_counts, groups, rows, box_rows, N, blocks); };
    const auto workspace_of_launch = [&] {
        return zoo::Workspace<zoo::Tile::TOKENS, Variant::BAND>{workspace,
                                                                {{ends_or_counts, rows}, groups},
                                                                zoo::ceil_div(N, zoo::Tile::WEIGHTS),
                                                                blocks * (zoo::PROMOTED_CHUNKS / zoo::Tile::CHUNKS),
                                                                box_rows};
    };
    reinterpret_cast<zoo::Pipeline*>(memory)->run(schedule, operands, gathered, result, workspace_of_launch);
#else
    const auto schedule = [&] {
        return zoo::schedule_of<zoo::Schedule>(ends_or_counts, groups, rows, box_rows, N,
                                               zoo::ceil_div(chunks, zoo::PROMOTED_CHUNKS));
    };
    reinterpret_cast<zoo::Pipeline*>(memory)->run(schedule, operands, gathered, result);
#endif
}
