// cp.async: a thread copies 4 or 16 bytes from global to shared memory without waiting; an mbarrier reports their arrival.
//
// The bytes count as the thread's own stores. Before tensor cores or the copy engine read them, a thread that has waited for them calls
// let_copies_see_shared_memory(). The copying thread should not call this fence: there it waits for all later copies, too.
#pragma once

#include <cstdint>

#include "common/mbarrier.cuh"

namespace zoo {

// Writes zeros without reading the source when the source does not exist.
__device__ __forceinline__ void copy_16_bytes(uint32_t target, const void* source, bool exists) {
    asm volatile("cp.async.cg.shared.global.L2::256B [%0], [%1], 16, %2;" ::"r"(target), "l"(source), "r"(exists ? 16 : 0)
                 : "memory");
}

__device__ __forceinline__ void copy_4_bytes(uint32_t target, const void* source, bool exists) {
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(target), "l"(source), "r"(exists ? 4 : 0) : "memory");
}

// Waits for all copies of this thread. Other threads see the bytes after a barrier.
__device__ __forceinline__ void wait_for_copies() { asm volatile("cp.async.wait_all;" ::: "memory"); }

// Arrives at the barrier when all copies of this thread have ended.
__device__ __forceinline__ void arrive_after_copies(Barrier* barrier) {
    asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(shared_address(barrier)) : "memory");
}

}  // namespace zoo
