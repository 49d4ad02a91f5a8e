// dequantize.<format>.rows and .squares of formats whose scales are plain or blocked. The skeleton is in rows.cuh, formats in formats.cuh.

#include "common/formats.cuh"
#include "common/variant.cuh"
#include "dequantize/rows.cuh"

// E matrices (R, C), one a blockIdx.y. Steps in elements of their arrays, but those of q in bytes; those named `expert_` lead to the next matrix.
extern "C" __global__ void __launch_bounds__(Variant::THREADS, Variant::CTAS)
    ZOO_KERNEL(const uint8_t* q, const uint8_t* scales, uint8_t* out, int32_t R, int32_t C, int64_t q_step, int64_t out_step,
               int64_t scales_row_step, int64_t scales_block_step, int64_t expert_q_step, int64_t expert_scales_step,
               int64_t expert_out_step, int32_t blocked) {
    const int64_t expert = blockIdx.y;
    zoo::dequantize_rows<Variant::out, Variant::THREADS, Variant::PIECES, Variant::SQUARE>(
        zoo::StoredAs<Variant::q, Variant::scales>::Type(), q + expert * expert_q_step, scales + expert * expert_scales_step,
        out + expert * expert_out_step * zoo::Output<Variant::out>::BYTES, R, C, q_step, out_step,
        zoo::ScaleSteps{scales_row_step, scales_block_step, blocked != 0});
}
