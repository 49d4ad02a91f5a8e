// Fences between the generic proxy (ordinary loads and stores) and the async proxy (TMA, wgmma, tcgen05 on shared memory).
//
// Needed:      ordinary store to shared memory -> fence -> barrier -> TMA store, wgmma or tcgen05 reads it.
// Not needed:  TMA wrote it -> wait on its mbarrier -> anybody reads it.
#pragma once

namespace fence {

// By the threads that wrote shared memory with ordinary stores, before the barrier that hands it to the async proxy.
__device__ __forceinline__ void proxy_async_shared() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

// By the threads that wrote global memory with ordinary stores that a bulk copy then reads.
__device__ __forceinline__ void proxy_async_global() { asm volatile("fence.proxy.async.global;" ::: "memory"); }

// By the thread that initialised mbarriers, before a cluster barrier or __syncthreads(): makes the initialisation visible to
// the other CTAs of the cluster and to the async proxy.
__device__ __forceinline__ void mbarrier_init() { asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory"); }

}  // namespace fence
