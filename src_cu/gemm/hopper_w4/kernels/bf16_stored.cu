// gemm.{bf16_nvfp4, bf16_mxfp4}.<grouping>.stored: as hopper_w4/kernels/bf16.cu, but the kernel reads a checkpoint's rows of codes and rows of scales.
// A cubin with groups serves one matrix and groups. A cubin without groups splits K for few rows of one matrix: each CTA of a cluster
// begins in the middle of a row of codes and of its scales. Read the files in this order:
//
//     gemm/schedule/tile_schedule.cuh, grouped_schedule.cuh    which tile does a CTA compute next?
//     hopper_w4/operands.cuh           how do tokens reach shared memory?
//     hopper_w4/weights/stored.cuh     where are stored weights, which of them does a lane need, and which schedule is used?
//     hopper_w4/bf16/mainloop.cuh      what is in shared memory, and how are tokens multiplied along K?
//     hopper_w4/bf16/weights.cuh       how do packed and stored weights become bf16?
//     hopper_w4/epilogue.cuh           how do sums become D?
//     gemm/epilogue/pushed_sums.cuh    how do the CTAs of a cluster add up their shares of K?
//     hopper_w4/pipeline.cuh           how do all threads begin, and what does a math thread spill?
//     hopper_w4/bf16/pipeline.cuh      which warp does what?

#include "gemm/hopper_w4/bf16/pipeline.cuh"

namespace zoo {

constexpr int SPLITS = Variant::SPLITS;
using Tile = Bf16Tile<WeightFormat(Variant::FORMAT), Variant::TOKENS, 1, Variant::STAGES, 4, gathering_threads<Variant>(),
                      WeightLayout::stored, looks_up<Variant>>;
using Schedule = StoredScheduleFor<Variant, Tile>;
using Pipeline = Bf16Pipeline<Tile, Schedule, SPLITS>;
constexpr int DYNAMIC_SHARED_BYTES = sizeof(Pipeline);

}  // namespace zoo

// Parameters as in stored.cu. K: columns of A.
extern "C" __global__ void __launch_bounds__(zoo::Tile::THREADS, Variant::CTAS) ZOO_KERNEL(ZOO_PARAMETERS) {
    ZOO_ABSENT_PARAMETERS
    extern __shared__ __align__(1024) uint8_t memory[];
    const zoo::StoredScales<> b_scales{b_scale, b_scale_group, b_scale_row, N, scales_a_row, largest};
    const zoo::StoredOperands<zoo::Tile> operands{{a, {nullptr, weight_parts, chunks}, box_rows, {}}, b, b_scales};
    const zoo::GatheredRows gathered{a_first, 2 * a_stride, a_rows, 2 * K, index};
    const zoo::FourBitResult<zoo::Tile::FORMAT> result{d,      d_stride, d_type,  N,    nullptr,           nullptr,
                                                       a_rows, alpha,    largest, bias, bias_is_bf16 != 0, row_scale};
    const auto schedule =
        zoo::stored_schedule<zoo::Schedule>(ends_or_counts, groups, rows, N, zoo::ceil_div(chunks, zoo::Tile::CHUNKS));
    reinterpret_cast<zoo::Pipeline*>(memory)->run(schedule, operands, gathered, result);
}
