// gemm.{fp8_nvfp4, fp8_mxfp4}.<grouping>.stored: as hopper_w4/kernels/packed.cu, but B has the layout of a checkpoint: rows of codes and rows of
// scales. A cubin with groups serves one matrix and groups. A cubin without groups splits K for few rows of one matrix.
// Read the files in this order:
//
//     gemm/schedule/tile_schedule.cuh, grouped_schedule.cuh    which tile does a CTA compute next?
//     hopper_w4/operands.cuh           where are A and its scales in global memory, and who copies them?
//     hopper_w4/weights/stored.cuh     where are stored weights, which of them does a lane need, and which schedule is used?
//     hopper_w4/tile.cuh               what is where in shared memory, and who arrives at which barrier?
//     hopper_w4/weights/packed.cuh     how do packed weights become e4m3 in registers?
//     hopper_w4/weights/stored_words.cuh    what do stored weights do differently?
//     hopper_w4/mainloop.cuh           how does a warpgroup accumulate over K, and when does it promote its sums?
//     hopper_w4/epilogue.cuh           how do sums become D?
//     gemm/epilogue/pushed_sums.cuh    how do the CTAs of a cluster add up their shares of K?
//     hopper_w4/pipeline.cuh           which warp does what?

#include <cstdint>

#include "gemm/hopper_w4/mainloop.cuh"
#include "gemm/hopper_w4/pipeline.cuh"
#include "gemm/hopper_w4/tile.cuh"
#include "gemm/hopper_w4/weights/stored_words.cuh"

namespace zoo {

constexpr int SPLITS = Variant::SPLITS, GATHERING_THREADS = gathering_threads<Variant>();
using Tile = FourBitTile<WeightFormat(Variant::FORMAT), Variant::TOKENS, Variant::TOKEN_PARTS, 2, Variant::STAGES, 4,
                         GATHERING_THREADS, narrows<Variant>, Promotion(Variant::PROMOTION), WeightLayout::stored>;
using Schedule = StoredScheduleFor<Variant, Tile>;
using Pipeline = FourBitPipeline<Tile, Schedule, SPLITS, Fp8Mainloop<Tile, SPLITS>>;
constexpr int DYNAMIC_SHARED_BYTES = sizeof(Pipeline);

}  // namespace zoo

//     ends_or_counts    ends of groups, or rows in use of each slot
//     rows              rows of the only matrix or of a slot, else 0
//     a_rows            rows of A
//     box_rows          rows of A in one tensor copy
//     chunks            number of chunks along K, 64 columns each
//     scales_a_row      number of scales of a weight row
//     b_scale_row       bytes from a weight row's scales to the next row's
//     b_scale_group     bytes from a group's scales to the next group's
//     largest           mxfp4: the scale of each weight row that becomes 2^6, the largest of the row
extern "C" __global__ void __launch_bounds__(zoo::Tile::THREADS, Variant::CTAS) ZOO_KERNEL(ZOO_PARAMETERS) {
    ZOO_ABSENT_PARAMETERS
    extern __shared__ __align__(1024) uint8_t memory[];
    const zoo::StoredScales<> b_scales{b_scale, b_scale_group, b_scale_row, N, scales_a_row, largest};
    const zoo::StoredOperands<zoo::Tile> operands{
        {a,
         {nullptr, weight_parts, chunks},
         box_rows,
         zoo::token_scales<zoo::Tile>(a_block_scale, a_scale_row, a_scale_block, a_scale_group, zoo::ceil_div(chunks, 2))},
        b,
        b_scales};
    const zoo::GatheredRows gathered{a_first, a_stride, a_rows, chunks * zoo::CHUNK, index};
    const zoo::FourBitResult<zoo::Tile::FORMAT> result{
        d,      d_stride, d_type,  N,    a_scale,           zoo::Tile::GATHERS ? index : nullptr,
        a_rows, alpha,    largest, bias, bias_is_bf16 != 0, row_scale};
    const auto schedule = [&] {
        return zoo::stored_schedule<zoo::Schedule>(ends_or_counts, groups, rows, N, zoo::ceil_div(chunks, zoo::PROMOTED_CHUNKS));
    };
    reinterpret_cast<zoo::Pipeline*>(memory)->run(schedule, operands, gathered, result);
}
