// gemm.{fp8_nvfp4, fp8_mxfp4}.<grouping> with promotion="never": as hopper_w4/kernels/packed.cu, but sums stay in the tensor core's accumulator
// registers along all of K. Without partial sums, tiles have up to 256 tokens or 256 weight rows.
//
// One warp loads weights and tokens. In gather cubins, three more warps gather rows of A by index. Two warpgroups multiply and store.
// Read the files in this order:
//
//     gemm/schedule/tile_schedule.cuh, grouped_schedule.cuh    which tile does a CTA compute next?
//     hopper_w4/schedule.cuh               which schedule does a variant use?
//     hopper_w4/operands.cuh               where are A and B in global memory, and who copies them?
//     hopper_w4/unpromoted/tile.cuh        which weight rows does a warpgroup have, and what is where in shared memory?
//     hopper_w4/weights/packed.cuh         how do packed weights become e4m3 in registers?
//     hopper_w4/unpromoted/mainloop.cuh    how does a warpgroup accumulate over K?
//     hopper_w4/epilogue.cuh               how do sums become D?
//     hopper_w4/pipeline.cuh               what does a thread spill to shared memory?
//     hopper_w4/unpromoted/pipeline.cuh    which warp does what?

#include <cstdint>

#include "gemm/hopper_w4/schedule.cuh"
#include "gemm/hopper_w4/unpromoted/pipeline.cuh"

namespace zoo {

static_assert(Promotion(Variant::PROMOTION) == Promotion::never);
using Tile =
    UnpromotedTile<WeightFormat(Variant::FORMAT), Variant::TOKENS, Variant::PARTS, Variant::STAGES, gathering_threads<Variant>()>;
using Schedule = ScheduleFor<Variant, Tile>;
using Pipeline = UnpromotedPipeline<Tile, Schedule>;
constexpr int DYNAMIC_SHARED_BYTES = sizeof(Pipeline);

}  // namespace zoo

// Parameters as in packed.cu.
extern "C" __global__ void __launch_bounds__(zoo::Tile::THREADS, Variant::CTAS) ZOO_KERNEL(ZOO_PARAMETERS) {
    ZOO_ABSENT_PARAMETERS
    extern __shared__ __align__(1024) uint8_t memory[];
    const zoo::FourBitOperands<zoo::Tile> operands{a, {b, weight_parts, chunks}, box_rows};
    const zoo::GatheredRows gathered{a_first, a_stride, a_rows, chunks * zoo::CHUNK, index};
    const zoo::FourBitResult<zoo::Tile::FORMAT> result{
        d,      d_stride, d_type,  N,    a_scale,           zoo::Tile::GATHERS ? index : nullptr,
        a_rows, alpha,    largest, bias, bias_is_bf16 != 0, row_scale};
    const auto schedule = [&] {
        return zoo::schedule_of<zoo::Schedule>(ends_or_counts, groups, rows, box_rows, N,
                                               zoo::ceil_div(chunks, zoo::Tile::CHUNKS));
    };
    reinterpret_cast<zoo::Pipeline*>(memory)->run(schedule, operands, gathered, result);
}
