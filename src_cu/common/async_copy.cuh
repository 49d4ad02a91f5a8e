// cp.async: each thread copies its own few bytes from global to shared memory and goes on; an mbarrier tells when they are there.
// They count as the thread's own stores: before the tensor cores or the copy engine read them, who has waited executes
// let_copies_see_shared_memory(). Not who copied: there the fence waits for all further copies, too.
#pragma once

#include <cstdint>

#include "common/mbarrier.cuh"

namespace zoo {

// Zeros where the source does not exist; it is not read then.
__device__ __forceinline__ void copy_16_bytes(uint32_t target, const void* source, bool exists) {
    asm volatile("cp.async.cg.shared.global.L2::256B [%0], [%1], 16, %2;" ::"r"(target), "l"(source), "r"(exists ? 16 : 0)
                 : "memory");
}

__device__ __forceinline__ void copy_4_bytes(uint32_t target, const void* source, bool exists) {
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(target), "l"(source), "r"(exists ? 4 : 0) : "memory");
}

// Until all copies that this thread has asked for are there. Others see them after a barrier.
__device__ __forceinline__ void wait_for_copies() { asm volatile("cp.async.wait_all;" ::: "memory"); }

// Arrives when all copies that this thread has asked for are over.
__device__ __forceinline__ void arrive_after_copies(Barrier* barrier) {
    asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(shared_address(barrier)) : "memory");
}

}  // namespace zoo
