// Named barriers: a barrier for some warps of a CTA. Number 0 is the barrier of __syncthreads().
#pragma once

namespace zoo {

__device__ __forceinline__ void synchronise_threads(int number, int threads) {
    asm volatile("bar.sync %0, %1;" ::"r"(number), "r"(threads) : "memory");
}

}  // namespace zoo
