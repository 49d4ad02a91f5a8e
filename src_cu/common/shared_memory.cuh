// Loads from shared memory that the compiler does not move across wgmma instructions.
#pragma once

#include <cstdint>

namespace zoo {

__device__ __forceinline__ float load_shared(uint32_t address) {
    float one;
    asm volatile("ld.shared.f32 %0, [%1];" : "=f"(one) : "r"(address) : "memory");
    return one;
}

__device__ __forceinline__ float2 load_two_shared(uint32_t address) {
    float2 two;
    asm volatile("ld.shared.v2.f32 {%0, %1}, [%2];" : "=f"(two.x), "=f"(two.y) : "r"(address) : "memory");
    return two;
}

}  // namespace zoo
