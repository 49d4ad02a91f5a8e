// quantize.nvfp4.rows: x (M, K) -> q, two e2m1 a byte, and an e4m3 scale for every 16 elements of a row, relative to the
// tensor's scale.
//
// The format is in nvfp4.cuh; everything else is what quantize.mxfp8.rows is made of (mxfp8_rows.cu says how and why).
// Of 32 bf16, 64 + 16 + 2 bytes move.

#include "common/variant.cuh"
#include "quantize/nvfp4.cuh"
#include "quantize/rows.cuh"
#include "quantize/whole_blocks.cuh"

// x_stride in elements; q_stride in bytes; scales_stride as in mxfp8_rows.cu.
extern "C" __global__ void __launch_bounds__(Variant::THREADS, Variant::CTAS)
ZOO_KERNEL(const uint8_t* x, const float* tensor_scale, uint8_t* q, uint8_t* scales, int64_t M, int64_t K,
           int64_t x_stride, int64_t q_stride, int64_t scales_stride) {
    if constexpr (zoo::Input<Variant::x>::VALUES == 8) {
        zoo::quantize_whole_blocks<Variant::layout, Variant::THREADS>(
            zoo::Nvfp4(tensor_scale), zoo::Matrix<Variant::x>{x, x_stride}, q, scales, M, K, q_stride, scales_stride);
    } else {
        constexpr int LOADS = 32 / zoo::Input<Variant::x>::VALUES;
        zoo::quantize_rows<Variant::x, Variant::layout, Variant::THREADS, LOADS>(
            zoo::Nvfp4(tensor_scale), x, q, scales, M, K, x_stride, q_stride, scales_stride);
    }
}
