// quantize.mxfp8.rows.swiglu: x (M, 2 K) -> q (M, K) of silu(gate) * up, e4m3, and a ue8m0 scale for every 32 elements of a
// row.
//
// SwiGLU is in swiglu.cuh, the format in mxfp8.cuh, the direction in whole_blocks.cuh. Of a block of bf16, 128 + 32 + 1 bytes
// move.

#include "common/variant.cuh"
#include "quantize/either.cuh"
#include "quantize/swiglu.cuh"
#include "quantize/whole_blocks.cuh"

// Strides as in mxfp8_rows.cu.
extern "C" __global__ void __launch_bounds__(Variant::THREADS, Variant::CTAS)
ZOO_KERNEL(const uint8_t* x, uint8_t* q, uint8_t* scales, int64_t M, int64_t K, int64_t x_stride,
           int64_t q_stride, int64_t scales_stride, int32_t rceil, int32_t interleaved) {
    zoo::quantize_whole_blocks<Variant::layout, Variant::THREADS>(
        zoo::AnyMxfp8<zoo::e4m3>(rceil), zoo::Swiglu<Variant::x>(x, x_stride, K, interleaved), q, scales, M, K, q_stride,
        scales_stride);
}
