// Words and bytes of global memory that CTAs tell each other things by.
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

// What was there before.
__device__ __forceinline__ uint32_t increment(uint32_t* address) {
    uint32_t v;
    asm volatile("atom.relaxed.gpu.global.add.u32 %0, [%1], 1;" : "=r"(v) : "l"(address) : "memory");
    return v;
}

// By the copy engine, which may read shared memory until wait_until_read().
__device__ __forceinline__ void store_bytes(void* target, const void* source, uint32_t bytes) {
    asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(target), "r"(shared_address(source)),
                 "r"(bytes)
                 : "memory");
    asm volatile("cp.async.bulk.commit_group;" ::: "memory");
}
// Until all but the last so many stores have read shared memory.
template <int STORES>
__device__ __forceinline__ void wait_until_read() {
    asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(STORES) : "memory");
}
__device__ __forceinline__ void wait_until_written() { asm volatile("cp.async.bulk.wait_group 0;" ::: "memory"); }

// Between what the copy engine reads or writes in global memory and what threads do.
__device__ __forceinline__ void order_copies() { asm volatile("fence.proxy.async.global;" ::: "memory"); }

}  // namespace zoo
