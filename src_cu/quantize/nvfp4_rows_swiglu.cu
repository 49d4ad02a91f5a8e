// quantize.nvfp4.rows.swiglu: x (M, 2 K) -> q (M, K / 2) of silu(gate) * up, two e2m1 a byte, and an e4m3 scale for every 16
// elements of a row, relative to the tensor's scale.
//
// SwiGLU is in swiglu.cuh, the format in nvfp4.cuh, the direction in whole_blocks.cuh. Of 32 results of bf16, 128 + 16 + 2
// bytes move.

#include "common/variant.cuh"
#include "quantize/nvfp4.cuh"
#include "quantize/swiglu.cuh"
#include "quantize/whole_blocks.cuh"

// Strides as in nvfp4_rows.cu.
extern "C" __global__ void __launch_bounds__(Variant::THREADS, Variant::CTAS)
ZOO_KERNEL(const uint8_t* x, const float* tensor_scale, uint8_t* q, uint8_t* scales, int64_t M, int64_t K, int64_t x_stride,
           int64_t q_stride, int64_t scales_stride, int32_t interleaved) {
    zoo::quantize_whole_blocks<Variant::layout, Variant::THREADS>(
        zoo::Nvfp4(tensor_scale), zoo::Swiglu<Variant::x>(x, x_stride, K, interleaved), q, scales, M, K, q_stride,
        scales_stride);
}
