// Tensor memory (sm_100): 128 lanes x 512 columns of 32 bits in each CTA, where tcgen05 keeps accumulators and scales.
//
// An address is lane << 16 | column. CTAS is 2 in a kernel whose CTA pairs multiply together, in every instruction of the kernel.
//
//     allocate -> [multiply -> commit -> wait for its barrier -> fence_after -> load -> wait_for_loads -> fence_before -> barrier]* -> free
#pragma once

#include <cstdint>

#include "common/mbarrier.cuh"

namespace zoo {

// Called by one whole warp in each CTA of a pair. It waits while another CTA of the multiprocessor holds the columns.
template <int CTAS, int COLUMNS>
__device__ __forceinline__ void allocate_columns(uint32_t* first) {
    static_assert(COLUMNS >= 32 && COLUMNS <= 512 && (COLUMNS & (COLUMNS - 1)) == 0, "a power of two");
    asm volatile("tcgen05.alloc.cta_group::%2.sync.aligned.shared::cta.b32 [%0], %1;" ::"r"(shared_address(first)), "n"(COLUMNS),
                 "n"(CTAS)
                 : "memory");
    asm volatile("tcgen05.relinquish_alloc_permit.cta_group::%0.sync.aligned;" ::"n"(CTAS));
}

// Called by the warp that allocated, after the last access by either CTA of a pair.
template <int CTAS, int COLUMNS>
__device__ __forceinline__ void free_columns(uint32_t first) {
    asm volatile("tcgen05.dealloc.cta_group::%2.sync.aligned.b32 %0, %1;" ::"r"(first), "n"(COLUMNS), "n"(CTAS));
}

// Fences around a barrier by which threads hand tensor memory to each other: one before it, one after it.
__device__ __forceinline__ void fence_before_handing_over() { asm volatile("tcgen05.fence::before_thread_sync;" ::: "memory"); }
__device__ __forceinline__ void fence_after_taking_over() { asm volatile("tcgen05.fence::after_thread_sync;" ::: "memory"); }

// Loads 32 columns of this lane's row, by a whole warp. Warp w accesses lanes 32 (w % 4) to 32 (w % 4) + 31. The registers are valid after
// wait_for_loads().
__device__ __forceinline__ void load_32_columns(float (&v)[32], uint32_t address) {
    asm volatile(
        "tcgen05.ld.sync.aligned.32x32b.x32.b32 {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, "
        "%18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, [%32];"
        : "=f"(v[0]), "=f"(v[1]), "=f"(v[2]), "=f"(v[3]), "=f"(v[4]), "=f"(v[5]), "=f"(v[6]), "=f"(v[7]), "=f"(v[8]), "=f"(v[9]),
          "=f"(v[10]), "=f"(v[11]), "=f"(v[12]), "=f"(v[13]), "=f"(v[14]), "=f"(v[15]), "=f"(v[16]), "=f"(v[17]), "=f"(v[18]),
          "=f"(v[19]), "=f"(v[20]), "=f"(v[21]), "=f"(v[22]), "=f"(v[23]), "=f"(v[24]), "=f"(v[25]), "=f"(v[26]), "=f"(v[27]),
          "=f"(v[28]), "=f"(v[29]), "=f"(v[30]), "=f"(v[31])
        : "r"(address));
}

__device__ __forceinline__ void load_16_columns(float (&v)[16], uint32_t address) {
    asm volatile(
        "tcgen05.ld.sync.aligned.32x32b.x16.b32 {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15}, [%16];"
        : "=f"(v[0]), "=f"(v[1]), "=f"(v[2]), "=f"(v[3]), "=f"(v[4]), "=f"(v[5]), "=f"(v[6]), "=f"(v[7]), "=f"(v[8]), "=f"(v[9]),
          "=f"(v[10]), "=f"(v[11]), "=f"(v[12]), "=f"(v[13]), "=f"(v[14]), "=f"(v[15])
        : "r"(address));
}

__device__ __forceinline__ void wait_for_loads() { asm volatile("tcgen05.wait::ld.sync.aligned;" ::: "memory"); }

// Stores 32 columns of this lane's row. Loads see them after wait_for_stores().
__device__ __forceinline__ void store_32_columns(uint32_t address, const float (&v)[32]) {
    asm volatile(
        "tcgen05.st.sync.aligned.32x32b.x32.b32 [%0], {%1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, "
        "%18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, %32};" ::"r"(address),
        "f"(v[0]), "f"(v[1]), "f"(v[2]), "f"(v[3]), "f"(v[4]), "f"(v[5]), "f"(v[6]), "f"(v[7]), "f"(v[8]), "f"(v[9]), "f"(v[10]),
        "f"(v[11]), "f"(v[12]), "f"(v[13]), "f"(v[14]), "f"(v[15]), "f"(v[16]), "f"(v[17]), "f"(v[18]), "f"(v[19]), "f"(v[20]),
        "f"(v[21]), "f"(v[22]), "f"(v[23]), "f"(v[24]), "f"(v[25]), "f"(v[26]), "f"(v[27]), "f"(v[28]), "f"(v[29]), "f"(v[30]),
        "f"(v[31])
        : "memory");
}

__device__ __forceinline__ void wait_for_stores() { asm volatile("tcgen05.wait::st.sync.aligned;" ::: "memory"); }

}  // namespace zoo
