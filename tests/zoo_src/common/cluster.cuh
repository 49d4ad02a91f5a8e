// CTAs of a cluster: rank, barrier, and a word of another CTA's shared memory.
#pragma once

#include <cstdint>

namespace zoo {

__device__ inline uint32_t cluster_rank() {
    uint32_t rank;
    asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
    return rank;
}

__device__ inline uint32_t cluster_size() {
    uint32_t size;
    asm("mov.u32 %0, %%cluster_nctarank;" : "=r"(size));
    return size;
}

__device__ inline void cluster_barrier() {
    asm volatile("barrier.cluster.arrive.release.aligned;\nbarrier.cluster.wait.acquire.aligned;" ::: "memory");
}

__device__ inline int load_from_rank(const int* shared, uint32_t rank) {
    uint32_t address = static_cast<uint32_t>(__cvta_generic_to_shared(shared)), remote;
    int value;
    asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(remote) : "r"(address), "r"(rank));
    asm volatile("ld.shared::cluster.s32 %0, [%1];" : "=r"(value) : "r"(remote) : "memory");
    return value;
}

}  // namespace zoo
