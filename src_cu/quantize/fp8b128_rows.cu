// quantize.fp8b128.rows: x (M, K) -> q (M, K), e4m3, and a float32 scale for every 128 elements of a row.
//
// The format is in fp8b128.cuh; everything else is what quantize.mxfp8.rows is made of (mxfp8_rows.cu says how and
// why). Of a block of bf16, 256 + 128 + 4 bytes move.

#include "common/variant.cuh"
#include "quantize/fp8b128.cuh"
#include "quantize/rows.cuh"

// scales_stride, in scales: plain, from row to row; mn_major, from one block of K to the next.
extern "C" __global__ void __launch_bounds__(Variant::THREADS, Variant::CTAS)
ZOO_KERNEL(const uint8_t* x, uint8_t* q, uint8_t* scales, int64_t M, int64_t K, int64_t x_stride, int64_t q_stride,
           int64_t scales_stride) {
    using Format = zoo::Fp8b128<Variant::scaling>;
    constexpr int LOADS = 32 / zoo::Input<Variant::x>::VALUES;
    zoo::quantize_rows<Variant::x, Variant::layout, Variant::THREADS, LOADS>(Format(), x, q, scales, M, K, x_stride,
                                                                             q_stride, scales_stride);
}
