// tcgen05 (sm_100): one thread starts matrix multiplies whose accumulator lives in tensor memory (128 lanes x 512 columns of
// 32 bits per CTA). CTAS = 1: the CTA alone. CTAS = 2: a pair of CTAs works as one, started by the even CTA.
//
// Life of a tile:  allocate columns -> [operands land in shared memory -> cp scales -> mma -> commit to an mbarrier]* ->
//                  wait -> fence_after -> ld -> wait_ld -> fence_before -> barrier -> deallocate.
// Ordering that comes for free: mma after mma on the same accumulator, mma after cp, by the same thread. Everything else goes
// through commit + mbarrier.
#pragma once
#include <cstdint>
#include "address.cuh"
#include "mbarrier.cuh"

namespace tcgen05 {

// ---- tensor memory -------------------------------------------------------------------------------------------------------
// By one whole warp (of each CTA of a pair). COLUMNS: a power of two, 32..512. The address is written to shared memory.
template <int CTAS, int COLUMNS>
__device__ __forceinline__ void allocate(uint32_t* address_in_shared) {
    static_assert(COLUMNS >= 32 && COLUMNS <= 512 && (COLUMNS & (COLUMNS - 1)) == 0, "a power of two, 32..512");
    asm volatile("tcgen05.alloc.cta_group::%2.sync.aligned.shared::cta.b32 [%0], %1;" ::"r"(address::shared(address_in_shared)),
                 "n"(COLUMNS), "n"(CTAS)
                 : "memory");
    asm volatile("tcgen05.relinquish_alloc_permit.cta_group::%0.sync.aligned;" ::"n"(CTAS));
}

template <int CTAS, int COLUMNS>
__device__ __forceinline__ void deallocate(uint32_t tensor_address) {
    asm volatile("tcgen05.dealloc.cta_group::%2.sync.aligned.b32 %0, %1;" ::"r"(tensor_address), "n"(COLUMNS), "n"(CTAS));
}

// ---- descriptors ---------------------------------------------------------------------------------------------------------
enum class Swizzle : uint64_t { none = 0, bytes_128 = 2, bytes_64 = 4, bytes_32 = 6 };

// Bits 0-13 start / 16, 16-29 leading byte offset / 16, 32-45 stride byte offset / 16, 46 = 1, 61-63 swizzle.
__device__ __forceinline__ uint64_t descriptor(const void* start, uint32_t leading_bytes, uint32_t stride_bytes,
                                               Swizzle swizzle) {
    return static_cast<uint64_t>((address::shared(start) & 0x3ffff) >> 4) | (static_cast<uint64_t>(leading_bytes >> 4) << 16) |
           (static_cast<uint64_t>(stride_bytes >> 4) << 32) | (1ull << 46) | (static_cast<uint64_t>(swizzle) << 61);
}

// A tile whose rows are 128 bytes of K, as TMA writes it with the 128-byte swizzle: 8 rows are 1024 bytes.
__device__ __forceinline__ uint64_t k_major_128b(const void* start) { return descriptor(start, 16, 1024, Swizzle::bytes_128); }

// One block of scales, 32 rows of 16 bytes: groups of 8 rows are 128 bytes apart, and one 16-byte column needs no leading offset.
__device__ __forceinline__ uint64_t scale_block(const void* start) { return descriptor(start, 0, 128, Swizzle::none); }

enum class Kind { mxf8f6f4, mxf4, mxf4nvf4 };
enum class Element : uint32_t { e4m3 = 0, e5m2 = 1, e2m3 = 3, e3m2 = 4, e2m1 = 5 };  // of kind::mxf8f6f4

// Instruction descriptor of the block-scaled kinds, both operands K-major: 4-5 scale id of B, 7-9 type of A, 10-12 type of B,
// 17-22 N/8, 23 scale type (0 ue4m3, 1 ue8m0), 24-28 M/16, 29-30 scale id of A. The scale ids select the bytes of a 32-bit
// tensor-memory cell that hold this instruction's scales.
__device__ __forceinline__ uint32_t instruction_descriptor(int m, int n, uint32_t type_a, uint32_t type_b, bool scales_are_ue8m0,
                                                           uint32_t scale_id) {
    return (scale_id << 4) | (type_a << 7) | (type_b << 10) | (static_cast<uint32_t>(n / 8) << 17) |
           (static_cast<uint32_t>(scales_are_ue8m0) << 23) | (static_cast<uint32_t>(m / 16) << 24) | (scale_id << 29);
}

// ---- work of one thread --------------------------------------------------------------------------------------------------
// 32 rows of 16 bytes -> 4 columns, lanes 0..31, and the same again in lanes 32.., 64.., 96..: what block scales need.
template <int CTAS>
__device__ __forceinline__ void copy_scales(uint32_t tensor_address, uint64_t descriptor) {
    asm volatile("tcgen05.cp.cta_group::%2.32x128b.warpx4 [%0], %1;" ::"r"(tensor_address), "l"(descriptor), "n"(CTAS)
                 : "memory");
}

template <int CTAS, Kind KIND>
__device__ __forceinline__ void mma_block_scaled(uint32_t d, uint64_t a, uint64_t b, uint32_t instruction, uint32_t scale_a,
                                                 uint32_t scale_b, bool accumulate) {
    if constexpr (KIND == Kind::mxf8f6f4) {
        asm volatile(
            "{\n\t"
            ".reg .pred accumulate;\n\t"
            "setp.ne.b32 accumulate, %6, 0;\n\t"
            "tcgen05.mma.cta_group::%7.kind::mxf8f6f4.block_scale.block32 [%0], %1, %2, %3, [%4], [%5], accumulate;\n\t"
            "}" ::"r"(d),
            "l"(a), "l"(b), "r"(instruction), "r"(scale_a), "r"(scale_b), "r"(static_cast<uint32_t>(accumulate)), "n"(CTAS)
            : "memory");
    } else if constexpr (KIND == Kind::mxf4) {
        asm volatile(
            "{\n\t"
            ".reg .pred accumulate;\n\t"
            "setp.ne.b32 accumulate, %6, 0;\n\t"
            "tcgen05.mma.cta_group::%7.kind::mxf4.block_scale.block32 [%0], %1, %2, %3, [%4], [%5], accumulate;\n\t"
            "}" ::"r"(d),
            "l"(a), "l"(b), "r"(instruction), "r"(scale_a), "r"(scale_b), "r"(static_cast<uint32_t>(accumulate)), "n"(CTAS)
            : "memory");
    } else {
        asm volatile(
            "{\n\t"
            ".reg .pred accumulate;\n\t"
            "setp.ne.b32 accumulate, %6, 0;\n\t"
            "tcgen05.mma.cta_group::%7.kind::mxf4nvf4.block_scale.block16 [%0], %1, %2, %3, [%4], [%5], accumulate;\n\t"
            "}" ::"r"(d),
            "l"(a), "l"(b), "r"(instruction), "r"(scale_a), "r"(scale_b), "r"(static_cast<uint32_t>(accumulate)), "n"(CTAS)
            : "memory");
    }
}

// One arrival on `barrier` when everything this thread has started so far is complete.
__device__ __forceinline__ void commit(mbarrier::Barrier* barrier) {
    asm volatile("tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [%0];" ::"r"(address::shared(barrier))
                 : "memory");
}

// CTA pair: the same, on the barrier of that name in every CTA of the mask.
__device__ __forceinline__ void commit_pair(mbarrier::Barrier* barrier, uint16_t cta_mask) {
    asm volatile("tcgen05.commit.cta_group::2.mbarrier::arrive::one.shared::cluster.multicast::cluster.b64 [%0], %1;" ::"r"(
                     address::shared(barrier)),
                 "h"(cta_mask)
                 : "memory");
}

// ---- between threads -----------------------------------------------------------------------------------------------------
__device__ __forceinline__ void fence_before() { asm volatile("tcgen05.fence::before_thread_sync;" ::: "memory"); }
__device__ __forceinline__ void fence_after() { asm volatile("tcgen05.fence::after_thread_sync;" ::: "memory"); }

// ---- reading back ----------------------------------------------------------------------------------------------------------
// 16 columns of this lane's row. Warp w of a warpgroup reaches lanes 32w..32w+31 only. Valid after wait_ld.
__device__ __forceinline__ void load_16_columns(float (&values)[16], uint32_t tensor_address) {
    asm volatile(
        "tcgen05.ld.sync.aligned.32x32b.x16.b32 {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15}, [%16];"
        : "=f"(values[0]), "=f"(values[1]), "=f"(values[2]), "=f"(values[3]), "=f"(values[4]), "=f"(values[5]), "=f"(values[6]),
          "=f"(values[7]), "=f"(values[8]), "=f"(values[9]), "=f"(values[10]), "=f"(values[11]), "=f"(values[12]),
          "=f"(values[13]), "=f"(values[14]), "=f"(values[15])
        : "r"(tensor_address));
}

__device__ __forceinline__ void wait_ld() { asm volatile("tcgen05.wait::ld.sync.aligned;" ::: "memory"); }

}  // namespace tcgen05
