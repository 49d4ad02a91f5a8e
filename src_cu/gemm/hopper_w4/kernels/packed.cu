// gemm.{fp8_nvfp4, fp8_mxfp4}.<grouping>: D = A B^T with e4m3 A and packed 4-bit B, on Hopper. A row of A is a token, a row of B a weight row.
// Hopper's tensor cores cannot read 4-bit numbers: math warps dequantize weights to e4m3 in registers, and wgmma reads them from there.
//
//                      rows of A in sequence         rows of A by index
//     warps 0 to 7     two warpgroups dequantize, multiply, promote and store
//     warp 8           one lane loads weights and    one lane loads weights
//                      tokens
//     warp 9           copies scale128, if any       gathers tokens, and scale128 if any
//     warps 10, 11     -                             gather as warp 9, unless two CTAs share the multiprocessor
//
// Above 64 tokens, a CTA always has warps 10 and 11, because setmaxnreg reallocates registers of whole warpgroups.
//
// Read the files in this order:
//
//     gemm/schedule/tile_schedule.cuh, grouped_schedule.cuh    which tile does a CTA compute next?
//     hopper_w4/schedule.cuh           which schedule does a variant use?
//     hopper_w4/operands.cuh           where are A, B and the scales in global memory, and who copies them?
//     hopper_w4/tile.cuh               what is where in shared memory, and who arrives at which barrier?
//     hopper_w4/weights/packed.cuh     how do packed weights become e4m3 in registers?
//     hopper_w4/mainloop.cuh           how does a warpgroup accumulate over K, and when does it promote its sums?
//     hopper_w4/epilogue.cuh           how do sums become D?
//     gemm/epilogue/pushed_sums.cuh    how do the CTAs of a cluster add up their shares of K?
//     hopper_w4/pipeline.cuh           which warp does what?
//
// Tiles of 256 tokens dequantize weights to shared memory instead: hopper_w4/kernels/dequantized.cu.

#include <cstdint>

#include "gemm/hopper_w4/mainloop.cuh"
#include "gemm/hopper_w4/pipeline.cuh"
#include "gemm/hopper_w4/schedule.cuh"
#include "gemm/hopper_w4/tile.cuh"

namespace zoo {

constexpr Promotion PROMOTION = Promotion(Variant::PROMOTION);
constexpr int WARPGROUPS = 2, GATHERING_THREADS = gathering_threads<Variant>();
using Tile = FourBitTile<WeightFormat(Variant::FORMAT), Variant::TOKENS, Variant::TOKEN_PARTS, WARPGROUPS, Variant::STAGES,
                         PROMOTED_CHUNKS, GATHERING_THREADS, narrows<Variant>, PROMOTION>;
using Schedule = ScheduleFor<Variant, Tile>;
using Pipeline = FourBitPipeline<Tile, Schedule, Variant::SPLITS, Fp8Mainloop<Tile, Variant::SPLITS>>;
constexpr int DYNAMIC_SHARED_BYTES = sizeof(Pipeline);

}  // namespace zoo

//     ends_or_counts    ends of groups, or rows in use of each slot
//     rows              rows of the only matrix or of a slot, else 0
//     a_rows            rows of A, where they are gathered
//     box_rows          rows of A in one tensor copy
//     weight_parts      number of weight parts of B, 64 rows each
//     chunks            number of chunks along K, 64 columns each
//     largest           mxfp4: the largest scale of each weight row
//     promotes          whether Promotion::if_asked promotes
extern "C" __global__ void __launch_bounds__(zoo::Tile::THREADS, Variant::CTAS) ZOO_KERNEL(ZOO_PARAMETERS) {
    ZOO_ABSENT_PARAMETERS
    extern __shared__ __align__(1024) uint8_t memory[];
    const auto scales =
        zoo::token_scales<zoo::Tile>(a_block_scale, a_scale_row, a_scale_block, a_scale_group, zoo::ceil_div(chunks, 2));
    const zoo::FourBitOperands<zoo::Tile> operands{a, {b, weight_parts, chunks}, box_rows, scales, promotes != 0};
    const zoo::GatheredRows gathered{a_first, a_stride, a_rows, chunks * zoo::CHUNK, index};
    const zoo::FourBitResult<zoo::Tile::FORMAT> result{
        d,      d_stride, d_type,  N,    a_scale,           zoo::Tile::GATHERS ? index : nullptr,
        a_rows, alpha,    largest, bias, bias_is_bf16 != 0, row_scale};
    const auto schedule = [&] {
        return zoo::schedule_of<zoo::Schedule>(ends_or_counts, groups, rows, box_rows, N,
                                               zoo::ceil_div(chunks, zoo::PROMOTED_CHUNKS));
    };
    reinterpret_cast<zoo::Pipeline*>(memory)->run(schedule, operands, gathered, result);
}
