// CTAs of a cluster: they run at the same time on neighbouring multiprocessors and reach each other's shared memory.
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

// By all threads of all CTAs. What was written before is visible to all after. One of the two is needed before the first access
// to another CTA's shared memory, which must have started, and after the last, before which it may not end, unless barriers of its
// own tell it that all has come.
__device__ __forceinline__ void synchronise_cluster() {
    asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
    asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
}

// The same without publishing what was written, which costs a fence of all memory: when barriers have been initialised (that
// has a fence of its own), and before the end.
__device__ __forceinline__ void meet_cluster() {
    asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory");
    asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
}

// The two halves of meet_cluster(): all threads do both.
__device__ __forceinline__ void arrive_at_cluster() { asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory"); }
__device__ __forceinline__ void wait_for_cluster() { asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory"); }

// The same variable in the CTA of that rank.
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

// One arrival at the same barrier of the CTA of that rank, which says no more than that this warp has read: what it wrote is not
// published. (With .release.cluster it would be, by a fence of all memory.)
__device__ __forceinline__ void arrive_in_cta(Barrier* barrier, uint32_t rank) {
    asm volatile("mbarrier.arrive.shared::cluster.b64 _, [%0];" ::"r"(address_in_cta(barrier, rank)) : "memory");
}

// Sixteen bytes to the same variable in the CTA of that rank; they count on its barrier, after whose phase they are visible.
__device__ __forceinline__ void store_in_cta(float4* pointer, float4 v, Barrier* barrier, uint32_t rank) {
    asm volatile("st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v4.f32 [%0], {%1, %2, %3, %4}, [%5];" ::"r"(
                     address_in_cta(pointer, rank)),
                 "f"(v.x), "f"(v.y), "f"(v.z), "f"(v.w), "r"(address_in_cta(barrier, rank))
                 : "memory");
}

// A word, likewise.
__device__ __forceinline__ void store_in_cta(uint32_t* pointer, uint32_t word, Barrier* barrier, uint32_t rank) {
    asm volatile(
        "st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.b32 [%0], %1, [%2];" ::"r"(address_in_cta(pointer, rank)),
        "r"(word), "r"(address_in_cta(barrier, rank))
        : "memory");
}

}  // namespace zoo
