// Barriers for some of a CTA's warps. Number 0 is that of __syncthreads().
#pragma once

namespace zoo {

__device__ __forceinline__ void synchronise_threads(int number, int threads) {
    asm volatile("bar.sync %0, %1;" ::"r"(number), "r"(threads) : "memory");
}

}  // namespace zoo
