// Block-scaled matrix multiplication by tensor cores (tcgen05.mma, sm_100): D += A B^T.
//
// D is f32 in tensor memory, and so are the scales. A and B are in shared memory: rows of 128 bytes of K with the 128-byte swizzle of
// the copy engine. One thread starts the instructions, and they run in the order of their start.
//
//     kind        elements              a scale for     K of one instruction   scales of one instruction
//     mxf8f6f4    8 bits, or 4 in 8     32, ue8m0       32                     1
//     mxf4        4 bits, two a byte    32, ue8m0       64                     2
//     mxf4nvf4    4 bits, two a byte    16, ue4m3       64                     4
#pragma once

#include <cstdint>

#include "common/mbarrier.cuh"

namespace zoo {

enum class MmaKind { mxf8f6f4, mxf4, mxf4nvf4 };

// Element types in an instruction descriptor. TYPE_E2M1_PACKED is for kinds mxf4 and mxf4nvf4, the others for mxf8f6f4.
constexpr uint32_t TYPE_E4M3 = 0, TYPE_E5M2 = 1, TYPE_E2M1_IN_8_BITS = 5, TYPE_E2M1_PACKED = 1;

// Descriptor of a matrix in shared memory. Bits 0-13: start / 16. Bits 16-29: leading offset / 16. Bits 32-45: stride offset / 16.
// Bit 46: version. Bits 61-63: swizzle.
__device__ __forceinline__ uint64_t shared_descriptor(uint32_t start, uint32_t leading_bytes, uint32_t stride_bytes,
                                                      uint64_t swizzle) {
    return uint64_t((start & 0x3FFFF) >> 4) | uint64_t(leading_bytes >> 4) << 16 | uint64_t(stride_bytes >> 4) << 32 |
           1ull << 46 | swizzle << 61;
}

// Swizzled rows of 128 bytes of K: 8 rows take 1024 bytes.
__device__ __forceinline__ uint64_t operand_descriptor(uint32_t start) { return shared_descriptor(start, 16, 1024, 2); }

// 512 bytes of scales, 32 rows of 16 bytes: 8 rows take 128 bytes.
__device__ __forceinline__ uint64_t scale_descriptor(uint32_t start) { return shared_descriptor(start, 0, 128, 0); }

// Descriptors of matrices that start later in shared memory. The start's 14 bits do not overflow. ptxas makes one instruction of such a sum, and
// four of a new descriptor.
__device__ __forceinline__ uint64_t bytes_after(uint64_t descriptor, uint32_t bytes) { return descriptor + (bytes >> 4); }
template <uint32_t STAGE_BYTES>
__device__ __forceinline__ uint64_t in_stage(uint64_t first, uint32_t stage) {
    return first + uint64_t(stage) * (STAGE_BYTES >> 4);
}

// Bits 4-5 and 29-30: byte of B's and of A's scales, counted in a 32-bit column of tensor memory; it changes with every step of K.
// Bits 7-9 and 10-12: types of A and B. Bits 17-22: N / 8. Bit 23: scales are ue8m0. Bits 24-28: M / 16.
__device__ __forceinline__ uint32_t instruction_descriptor(uint32_t m, uint32_t n, uint32_t type_a, uint32_t type_b, bool ue8m0) {
    return type_a << 7 | type_b << 10 | (n >> 3) << 17 | uint32_t(ue8m0) << 23 | (m >> 4) << 24;
}
__device__ __forceinline__ constexpr uint32_t scales_at_byte(uint32_t byte) { return byte << 4 | byte << 29; }

// Copies 512 bytes of scales to four columns of tensor memory: row r to lanes r, r + 32, r + 64 and r + 96. Each CTA of a pair copies
// from its own shared memory. Multiplications that the same thread starts later read the copied scales.
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

// One arrival when all multiplications that this thread has started have ended. The second function arrives in both CTAs of a pair.
template <int CTAS>
__device__ __forceinline__ void arrive_after_multiplications(Barrier* barrier) {
    asm volatile("tcgen05.commit.cta_group::%1.mbarrier::arrive::one.shared::cluster.b64 [%0];" ::"r"(shared_address(barrier)),
                 "n"(CTAS)
                 : "memory");
}
template <int CTAS>
__device__ __forceinline__ void arrive_in_all_after_multiplications(Barrier* barrier) {
    if constexpr (CTAS == 1) {
        arrive_after_multiplications<1>(barrier);
    } else {
        asm volatile("tcgen05.commit.cta_group::2.mbarrier::arrive::one.shared::cluster.multicast::cluster.b64 [%0], %1;" ::"r"(
                         shared_address(barrier)),
                     "h"(uint16_t(0b11))
                     : "memory");
    }
}

}  // namespace zoo
