// quantize.mxfp4.rows: x (M, K) -> q, two e2m1 a byte, and a ue8m0 scale for every 32 elements of a row.
//
// The format is in mxfp4.cuh; everything else is what quantize.mxfp8.rows is made of (mxfp8_rows.cu says how and why).
// Of a block of bf16, 64 + 16 + 1 bytes move.

#include "common/variant.cuh"
#include "quantize/mxfp4.cuh"
#include "quantize/rows.cuh"
#include "quantize/whole_blocks.cuh"

// x_stride in elements; q_stride in bytes; scales_stride as in mxfp8_rows.cu.
extern "C" __global__ void __launch_bounds__(Variant::THREADS, Variant::CTAS)
ZOO_KERNEL(const uint8_t* x, uint8_t* q, uint8_t* scales, int64_t M, int64_t K, int64_t x_stride, int64_t q_stride,
           int64_t scales_stride) {
    using Format = zoo::Mxfp4<Variant::rounding>;
    if constexpr (zoo::Input<Variant::x>::VALUES == 8) {
        zoo::quantize_whole_blocks<Variant::layout, Variant::THREADS>(
            Format(), zoo::Matrix<Variant::x>{x, x_stride}, q, scales, M, K, q_stride, scales_stride);
    } else {
        constexpr int LOADS = 32 / zoo::Input<Variant::x>::VALUES;
        zoo::quantize_rows<Variant::x, Variant::layout, Variant::THREADS, LOADS>(Format(), x, q, scales, M, K, x_stride,
                                                                                 q_stride, scales_stride);
    }
}
