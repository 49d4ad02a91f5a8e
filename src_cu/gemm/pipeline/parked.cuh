// What a multiplying warp needs only between two tiles waits in shared memory meanwhile: its registers are full of sums.
#pragma once

#include <cstdint>

#include "common/mbarrier.cuh"

namespace zoo {

// Eight numbers, the same in all lanes of a warp, out of its registers and back. In assembly, or the compiler keeps them.
__device__ __forceinline__ void park(int* place, const int (&numbers)[8]) {
#pragma unroll
    for (int i = 0; i < 8; i += 4)
        asm volatile("st.shared.v4.u32 [%0], {%1, %2, %3, %4};" ::"r"(shared_address(place + i)), "r"(numbers[i]),
                     "r"(numbers[i + 1]), "r"(numbers[i + 2]), "r"(numbers[i + 3])
                     : "memory");
    __syncwarp();
}

__device__ __forceinline__ void fetch(const int* place, int (&numbers)[8]) {
#pragma unroll
    for (int i = 0; i < 8; i += 4)
        asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
                     : "=r"(numbers[i]), "=r"(numbers[i + 1]), "=r"(numbers[i + 2]), "=r"(numbers[i + 3])
                     : "r"(shared_address(place + i))
                     : "memory");
    __syncwarp();
}

}  // namespace zoo
