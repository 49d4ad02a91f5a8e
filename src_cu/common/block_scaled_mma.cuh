// Block-scaled products of the tensor cores (sm_100): D (f32, tensor memory) += A B^T, both operands in shared memory as the copy
// engine writes lines of 128 bytes of K with the 128-byte swizzle, their scales in tensor memory. One thread starts them; they run
// in the order in which they were started.
//
//     kind        elements              a scale for     K of one instruction   its scales
//     mxf8f6f4    8 bits, or 4 in 8     32, ue8m0       32                     1
//     mxf4        4 bits, two a byte    32, ue8m0       64                     2
//     mxf4nvf4    4 bits, two a byte    16, ue4m3       64                     4
#pragma once

#include <cstdint>

#include "common/mbarrier.cuh"

namespace zoo {

enum class MmaKind { mxf8f6f4, mxf4, mxf4nvf4 };

// Types of elements as instruction descriptors name them: of mxf8f6f4, and of the kinds of packed e2m1.
constexpr uint32_t TYPE_E4M3 = 0, TYPE_E5M2 = 1, TYPE_E2M1_IN_8_BITS = 5, TYPE_E2M1_PACKED = 1;

// Of a matrix in shared memory: bits 0-13 its start / 16, 16-29 and 32-45 the leading and the stride offset / 16, 46 the version,
// 61-63 the swizzle.
__device__ __forceinline__ uint64_t shared_matrix(uint32_t start, uint32_t leading_bytes, uint32_t stride_bytes,
                                                  uint64_t swizzle) {
    return uint64_t((start & 0x3FFFF) >> 4) | uint64_t(leading_bytes >> 4) << 16 | uint64_t(stride_bytes >> 4) << 32 |
           1ull << 46 | swizzle << 61;
}

// Rows of 128 bytes of K, swizzled: 8 of them are 1024 bytes.
__device__ __forceinline__ uint64_t matrix_of_lines(uint32_t start) { return shared_matrix(start, 16, 1024, 2); }

// 512 bytes of scales, 32 rows of 16: 8 rows are 128 bytes.
__device__ __forceinline__ uint64_t matrix_of_scales(uint32_t start) { return shared_matrix(start, 0, 128, 0); }

// Of an instruction: bits 4-5 the byte of B's scales, 7-9 and 10-12 the types of A and B, 17-22 N / 8, 23 whether scales are ue8m0,
// 24-28 M / 16, 29-30 the byte of A's scales. A scale's byte is the one of its 32-bit column that belongs to this step.
__device__ __forceinline__ uint32_t mma_shape(uint32_t m, uint32_t n, uint32_t type_a, uint32_t type_b, bool ue8m0) {
    return type_a << 7 | type_b << 10 | (n >> 3) << 17 | uint32_t(ue8m0) << 23 | (m >> 4) << 24;
}
__device__ __forceinline__ constexpr uint32_t scales_at_byte(uint32_t byte) { return byte << 4 | byte << 29; }

// 512 bytes of scales to four columns of tensor memory, of each CTA of a pair from its own shared memory: row r to lanes r, r + 32,
// r + 64 and r + 96. What a product started afterwards by the same thread reads is there.
template <int CTAS>
__device__ __forceinline__ void copy_scales(uint32_t column, uint64_t scales) {
    asm volatile("tcgen05.cp.cta_group::%2.32x128b.warpx4 [%0], %1;" ::"r"(column), "l"(scales), "n"(CTAS) : "memory");
}

template <int CTAS, MmaKind KIND>
__device__ __forceinline__ void multiply(uint32_t d, uint64_t a, uint64_t b, uint32_t instruction, uint32_t a_scales,
                                         uint32_t b_scales, bool adds) {
#define ZOO_MMA(KIND_AND_BLOCK)                                                                                          \
    asm volatile(                                                                                                        \
        "{\n\t"                                                                                                          \
        ".reg .pred adds;\n\t"                                                                                           \
        "setp.ne.b32 adds, %6, 0;\n\t"                                                                                   \
        "tcgen05.mma.cta_group::%7.kind::" KIND_AND_BLOCK " [%0], %1, %2, %3, [%4], [%5], adds;\n\t"                     \
        "}" ::"r"(d), "l"(a), "l"(b), "r"(instruction), "r"(a_scales), "r"(b_scales), "r"(uint32_t(adds)), "n"(CTAS)     \
        : "memory")
    if constexpr (KIND == MmaKind::mxf8f6f4) ZOO_MMA("mxf8f6f4.block_scale.block32");
    if constexpr (KIND == MmaKind::mxf4) ZOO_MMA("mxf4.block_scale.block32");
    if constexpr (KIND == MmaKind::mxf4nvf4) ZOO_MMA("mxf4nvf4.block_scale.block16");
#undef ZOO_MMA
}

// One arrival when all that this thread has started is over: at a barrier of this CTA, or of this name in both CTAs of a pair.
template <int CTAS>
__device__ __forceinline__ void arrive_after_products(Barrier* barrier) {
    asm volatile("tcgen05.commit.cta_group::%1.mbarrier::arrive::one.shared::cluster.b64 [%0];" ::"r"(shared_address(barrier)),
                 "n"(CTAS)
                 : "memory");
}
template <int CTAS>
__device__ __forceinline__ void arrive_in_all_after_products(Barrier* barrier) {
    if constexpr (CTAS == 1) {
        arrive_after_products<1>(barrier);
    } else {
        asm volatile("tcgen05.commit.cta_group::2.mbarrier::arrive::one.shared::cluster.multicast::cluster.b64 [%0], %1;" ::"r"(
                         shared_address(barrier)),
                     "h"(uint16_t(0b11))
                     : "memory");
    }
}

}  // namespace zoo
