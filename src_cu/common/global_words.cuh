// Communication between CTAs through words of global memory: loads and stores with a memory order, and fences for bulk copies.
#pragma once

#include <cstdint>

#include "common/mbarrier.cuh"

namespace zoo {

__device__ __forceinline__ uint32_t load_relaxed(const uint32_t* address) {
    uint32_t v;
    asm volatile("ld.relaxed.gpu.global.u32 %0, [%1];" : "=r"(v) : "l"(address) : "memory");
    return v;
}
__device__ __forceinline__ uint32_t load_acquire(const uint32_t* address) {
    uint32_t v;
    asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(v) : "l"(address) : "memory");
    return v;
}
__device__ __forceinline__ void store_release(uint32_t* address, uint32_t v) {
    asm volatile("st.release.gpu.global.u32 [%0], %1;" ::"l"(address), "r"(v) : "memory");
}

// Returns the old value.
__device__ __forceinline__ uint32_t increment(uint32_t* address) {
    uint32_t v;
    asm volatile("atom.relaxed.gpu.global.add.u32 %0, [%1], 1;" : "=r"(v) : "l"(address) : "memory");
    return v;
}

// A store by the copy engine. It may read shared memory until wait_until_read().
__device__ __forceinline__ void store_bytes(void* target, const void* source, uint32_t bytes) {
    asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(target), "r"(shared_address(source)),
                 "r"(bytes)
                 : "memory");
    asm volatile("cp.async.bulk.commit_group;" ::: "memory");
}
// Waits until all but the newest STORES stores have read shared memory.
template <int STORES>
__device__ __forceinline__ void wait_until_read() {
    asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(STORES) : "memory");
}
__device__ __forceinline__ void wait_until_written() { asm volatile("cp.async.bulk.wait_group 0;" ::: "memory"); }

// Orders accesses of global memory by the copy engine and by threads.
__device__ __forceinline__ void order_copies() { asm volatile("fence.proxy.async.global;" ::: "memory"); }

}  // namespace zoo
