// Loads and stores of global memory whose order and width the compiler may not change.
#pragma once

#include <cstdint>

namespace zoo {

// Not `.nc`, which promises that no thread writes the bytes while the kernel runs. With programmatic dependent launch the previous kernel
// may still write them. No cache hint: L1::no_allocate and every evict_first hint cost 7 % of the bandwidth (H200).
// Volatile keeps several calls together, ahead of their use.
__device__ __forceinline__ uint4 load_16_bytes(const void* address) {
    uint4 v;
    asm volatile("ld.global.v4.u32 {%0, %1, %2, %3}, [%4];" : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "l"(address));
    return v;
}

// An int that an earlier kernel may just have written. The load stays ahead of later loads.
__device__ __forceinline__ int load_int(const int* address) {
    int v;
    asm volatile("ld.global.s32 %0, [%1];" : "=r"(v) : "l"(address));
    return v;
}

__device__ __forceinline__ void store_16_bytes(void* address, const uint32_t* words) {
    *static_cast<uint4*>(address) = make_uint4(words[0], words[1], words[2], words[3]);
}

__device__ __forceinline__ void store_8_bytes(void* address, const uint32_t* words) {
    *static_cast<uint2*>(address) = make_uint2(words[0], words[1]);
}

}  // namespace zoo
