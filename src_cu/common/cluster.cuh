// Thread block clusters: their CTAs run at the same time on neighbouring multiprocessors and access each other's shared memory.
#pragma once

#include <cstdint>

#include "common/mbarrier.cuh"

namespace zoo {

__device__ __forceinline__ uint32_t cluster_rank() {
    uint32_t rank;
    asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
    return rank;
}

__device__ __forceinline__ uint32_t cluster_size() {
    uint32_t size;
    asm volatile("mov.u32 %0, %%cluster_nctaid.x;" : "=r"(size));
    return size;
}

// A barrier for all threads of all CTAs, which publishes earlier writes.
//
// A cluster needs this barrier or the relaxed barrier twice. Before the first access to another CTA's shared memory: that CTA must have
// started. After the last access: until then that CTA may not end. Its own mbarriers can replace the second barrier.
__device__ __forceinline__ void synchronise_cluster() {
    asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
    asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
}

// The barrier without publication, which would cost a fence of all memory. Use it after initialise(), which has its own fence, and at
// the end of a kernel.
__device__ __forceinline__ void synchronise_cluster_relaxed() {
    asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory");
    asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
}

// The two halves of synchronise_cluster_relaxed(). All threads call both.
__device__ __forceinline__ void arrive_at_cluster() { asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory"); }
__device__ __forceinline__ void wait_for_cluster() { asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory"); }

// The address of the variable in the CTA of this rank.
__device__ __forceinline__ uint32_t address_in_cta(const void* pointer, uint32_t rank) {
    uint32_t address;
    asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(address) : "r"(shared_address(pointer)), "r"(rank));
    return address;
}

__device__ __forceinline__ float4 load_in_cta(const float* pointer, uint32_t rank) {
    float4 v;
    asm volatile("ld.shared::cluster.v4.f32 {%0, %1, %2, %3}, [%4];"
                 : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w)
                 : "r"(address_in_cta(pointer, rank))
                 : "memory");
    return v;
}

// One arrival at the barrier in the CTA of this rank. It reports that this warp has read, but does not publish writes: .release.cluster
// would publish them with a fence of all memory.
__device__ __forceinline__ void arrive_in_cta(Barrier* barrier, uint32_t rank) {
    asm volatile("mbarrier.arrive.shared::cluster.b64 _, [%0];" ::"r"(address_in_cta(barrier, rank)) : "memory");
}

// Stores 16 bytes to the variable in the CTA of this rank. That CTA's barrier counts the bytes; they are visible after its phase.
__device__ __forceinline__ void store_in_cta(float4* pointer, float4 v, Barrier* barrier, uint32_t rank) {
    asm volatile("st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v4.f32 [%0], {%1, %2, %3, %4}, [%5];" ::"r"(
                     address_in_cta(pointer, rank)),
                 "f"(v.x), "f"(v.y), "f"(v.z), "f"(v.w), "r"(address_in_cta(barrier, rank))
                 : "memory");
}

__device__ __forceinline__ void store_in_cta(uint32_t* pointer, uint32_t word, Barrier* barrier, uint32_t rank) {
    asm volatile(
        "st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.b32 [%0], %1, [%2];" ::"r"(address_in_cta(pointer, rank)),
        "r"(word), "r"(address_in_cta(barrier, rank))
        : "memory");
}

}  // namespace zoo
