// quantize.fp8b128.rows.m_grouped_contiguous: groups of rows of x -> q, e4m3, and a float32 scale for every 128 elements of a row;
// nothing is padded but blocked scales, where every group has tiles of its own.
//
// How rows find their places is in row_groups.cuh, everything else is quantize.fp8b128.rows.

#include "common/variant.cuh"
#include "quantize/either.cuh"
#include "quantize/row_groups.cuh"

// x_stride in elements, q_stride in bytes; scales_stride as in fp8b128_rows.cu.
extern "C" __global__ void __launch_bounds__(Variant::THREADS, Variant::CTAS)
ZOO_KERNEL(const uint8_t* x, const int32_t* index, const int32_t* offsets, uint8_t* q,
           uint8_t* scales, int32_t M, int32_t G, int64_t K, uint32_t x_stride,
           uint32_t q_stride, int64_t scales_stride, int32_t pow2) {
    zoo::quantize_row_groups<Variant::x, Variant::layout, false, Variant::THREADS>(
        zoo::AnyFp8b128(pow2), {offsets, index, M, G}, false, x, q, scales, nullptr, nullptr,
        K, x_stride, q_stride, scales_stride);
}
