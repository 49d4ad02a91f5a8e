// CTAs of one cluster: rank and the cluster-wide barrier.
#pragma once
#include <cstdint>

namespace cluster {

__device__ __forceinline__ uint32_t cta_rank() {
    uint32_t rank;
    asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
    return rank;
}

// Every thread of every CTA of the cluster arrives and waits. Release on arrival, acquire on return: what was written before
// is visible to all after. Needed before the first remote access (the other CTA must have started and initialised its
// barriers) and after the last one (a CTA must not exit while others still address its shared memory).
__device__ __forceinline__ void synchronize() {
    asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
    asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
}

}  // namespace cluster
