// Shared-memory addresses as the asynchronous instructions want them.
//
// A C++ pointer to shared memory is a 64-bit generic address; PTX instructions of the .shared state space take 32 bits.
// Inside a cluster the same 32-bit address, with another CTA's rank put in, names the same place in that CTA.
#pragma once
#include <cstdint>

namespace address {

__device__ __forceinline__ uint32_t shared(const void* pointer) {
    return static_cast<uint32_t>(__cvta_generic_to_shared(pointer));
}

// The address of the same variable in the CTA of the cluster whose rank is given.
__device__ __forceinline__ uint32_t in_cta(const void* pointer, uint32_t cta_rank) {
    uint32_t result;
    asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(result) : "r"(shared(pointer)), "r"(cta_rank));
    return result;
}

// Dynamic shared memory starts wherever the static variables end; swizzled tiles must start on a multiple of 1024 bytes
// (the 128-byte swizzle repeats after 8 rows of 128). Ask for 1024 bytes more than needed and round up.
__device__ __forceinline__ uint8_t* align_1024(uint8_t* pointer) { return pointer + ((1024 - (shared(pointer) & 1023)) & 1023); }

}  // namespace address
