// Stores of whole 32-byte sectors (sm_100). Lanes that store to different rows send a sector at once, instead of its halves one after the other.
#pragma once

#include <cstdint>

#include "common/global_memory.cuh"

namespace zoo {

// `address` is a multiple of 32.
__device__ __forceinline__ void store_32_bytes(void* address, const uint32_t* words) {
    asm volatile("st.global.v8.b32 [%0], {%1, %2, %3, %4, %5, %6, %7, %8};" ::"l"(address), "r"(words[0]), "r"(words[1]),
                 "r"(words[2]), "r"(words[3]), "r"(words[4]), "r"(words[5]), "r"(words[6]), "r"(words[7])
                 : "memory");
}

// Stores the first `bytes` of `words`, a multiple of 16. `address` is a multiple of 16. Halves of sectors are stored where only some of the words
// exist, and where `address` is within a sector.
template <int WORDS>
__device__ __forceinline__ void store_sectors(uint8_t* address, const uint32_t (&words)[WORDS], int bytes) {
    static_assert(WORDS % 4 == 0);
    if (WORDS % 8 == 0 && bytes >= 4 * WORDS && reinterpret_cast<uintptr_t>(address) % 32 == 0) {
#pragma unroll
        for (int i = 0; i + 8 <= WORDS; i += 8) store_32_bytes(address + 4 * i, words + i);
    } else {
#pragma unroll
        for (int i = 0; i < WORDS; i += 4)
            if (4 * i < bytes) store_16_bytes(address + 4 * i, words + i);
    }
}

}  // namespace zoo
