// gemm.{bf16_nvfp4, bf16_mxfp4}.<grouping>: D = A B^T of bf16 tokens and packed 4-bit weights on Hopper. Each weight becomes a bf16, exactly, in a
// register on its way to the tensor core. Packing for bf16 has another order than packing for FP8 (hopper_w4/kernels/packed.cu).
// Read the files in this order:
//
//     gemm/schedule/tile_schedule.cuh, grouped_schedule.cuh    which tile does a CTA compute next?
//     hopper_w4/schedule.cuh           which schedule does a variant use?
//     hopper_w4/operands.cuh           how do tokens and weights reach shared memory?
//     hopper_w4/bf16/mainloop.cuh      what is in shared memory, and how are tokens multiplied along K?
//     hopper_w4/bf16/weights.cuh       how do packed and stored weights become bf16?
//     hopper_w4/weights/stored.cuh     where are stored weights and their scales?
//     hopper_w4/epilogue.cuh           how do sums become D?
//     gemm/epilogue/pushed_sums.cuh    how do the CTAs of a cluster add up their shares of K?
//     hopper_w4/pipeline.cuh           how do all threads begin, and what does a math thread spill?
//     hopper_w4/bf16/pipeline.cuh      which warp does what?

#include "gemm/hopper_w4/bf16/pipeline.cuh"
#include "gemm/hopper_w4/schedule.cuh"

namespace zoo {

// Here 96 threads fit beside a second CTA, too.
constexpr int GATHERING_THREADS = gathering_threads<Variant>() > 0 ? 96 : 0;
using Tile =
    Bf16Tile<WeightFormat(Variant::FORMAT), Variant::TOKENS, Variant::PARTS, Variant::STAGES, Variant::CHUNKS, GATHERING_THREADS>;
using Schedule = ScheduleFor<Variant, Tile>;
using Pipeline = Bf16Pipeline<Tile, Schedule, Variant::SPLITS>;
constexpr int DYNAMIC_SHARED_BYTES = sizeof(Pipeline);

}  // namespace zoo

// Parameters as in packed.cu. K: columns of A.
extern "C" __global__ void __launch_bounds__(zoo::Tile::THREADS, Variant::CTAS) ZOO_KERNEL(ZOO_PARAMETERS) {
    extern __shared__ __align__(1024) uint8_t memory[];
    const zoo::FourBitOperands<zoo::Tile> operands{a, {b, weight_parts, chunks}, box_rows};
    const zoo::GatheredRows gathered{a_first, 2 * a_stride, a_rows, 2 * K, index};
    const zoo::FourBitResult<zoo::Tile::FORMAT> result{d,      d_stride, d_type,  N,    nullptr,           nullptr,
                                                       a_rows, alpha,    largest, bias, bias_is_bf16 != 0, row_scale};
    const auto schedule =
        zoo::schedule_of<zoo::Schedule>(ends_or_counts, groups, rows, box_rows, N, zoo::ceil_div(chunks, zoo::Tile::CHUNKS));
    reinterpret_cast<zoo::Pipeline*>(memory)->run(schedule, operands, gathered, result);
}
