// Global memory, 16 bytes an access; 8 where a row ends; an int of what lies beside the data.
#pragma once

#include <cstdint>

namespace zoo {

// Not `.nc`: that promises bytes which nobody writes while the kernel runs, and with programmatic dependent launch the
// kernel may be resident while the one ahead still writes its input. No cache hint either: on Hopper L1::no_allocate
// and every evict_first hint cost 7 % of the bandwidth. Volatile: several calls stay together, ahead of their use.
__device__ __forceinline__ uint4 load_16_bytes(const void* address) {
    uint4 v;
    asm volatile("ld.global.v4.u32 {%0, %1, %2, %3}, [%4];" : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "l"(address));
    return v;
}

// The same for an int that others may just have written, ahead of loads that follow.
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
