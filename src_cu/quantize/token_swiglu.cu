// quantize.fp8token.rows.swiglu: x (M, 2 K) -> q (M, K) of silu(gate) * up, and a scale for every row.
//
// SwiGLU is in swiglu.cuh, everything else in token_rows.cuh: results wait in registers as float32.

#include "common/variant.cuh"
#include "quantize/fp8b128.cuh"
#include "quantize/swiglu.cuh"
#include "quantize/token_rows.cuh"

// Strides as in token_rows.cu.
extern "C" __global__ void __launch_bounds__(Variant::THREADS, Variant::CTAS)
    ZOO_KERNEL(const uint8_t* x, uint8_t* q, float* scales, int32_t M, int32_t K, int64_t x_stride, int64_t q_stride,
               int32_t warps_of_row, int32_t fragments, int32_t interleaved) {
    using namespace zoo;
    quantize_token_rows<Variant::THREADS>(Fp8b128<Scaling::exact>{}, Swiglu<Variant::x>(x, x_stride, K, interleaved), nullptr, q,
                                          scales, M, K, q_stride, warps_of_row, fragments);
}
