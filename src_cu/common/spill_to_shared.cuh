// Spills registers of a warp to shared memory by hand: values that a math warp does not need while its registers are full of sums.
#pragma once

#include "common/mbarrier.cuh"

namespace zoo {

// Stores eight numbers that are equal in all lanes of a warp. Assembly, because the compiler would keep the numbers in registers.
__device__ __forceinline__ void spill(int* to, const int (&numbers)[8]) {
#pragma unroll
    for (int i = 0; i < 8; i += 4)
        asm volatile("st.shared.v4.u32 [%0], {%1, %2, %3, %4};" ::"r"(shared_address(to + i)), "r"(numbers[i]),
                     "r"(numbers[i + 1]), "r"(numbers[i + 2]), "r"(numbers[i + 3])
                     : "memory");
    __syncwarp();
}

__device__ __forceinline__ void reload(const int* from, int (&numbers)[8]) {
#pragma unroll
    for (int i = 0; i < 8; i += 4)
        asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
                     : "=r"(numbers[i]), "=r"(numbers[i + 1]), "=r"(numbers[i + 2]), "=r"(numbers[i + 3])
                     : "r"(shared_address(from + i))
                     : "memory");
    __syncwarp();
}

}  // namespace zoo
