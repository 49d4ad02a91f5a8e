// The two bf16 that a byte of codes as a checkpoint stores them is: computed, or looked up. A table of 256 pairs has each of them once for every
// lane, so that no two lanes of a warp meet in a bank, whatever they look up: 32 KB. A pair takes a load from shared memory, and a rotation and a
// mask by the units that permute bytes, where computing takes four and a half of those.
#pragma once

#include <cstdint>

namespace zoo {

// All four bits of a selector count, as __byte_perm has only three: the fourth spreads a byte's sign.
__device__ __forceinline__ uint32_t permute_bytes(uint32_t low, uint32_t high, uint32_t selector) {
    uint32_t bytes;
    asm("prmt.b32 %0, %1, %2, %3;" : "=r"(bytes) : "r"(low), "r"(high), "r"(selector));
    return bytes;
}

// Upper and lower bytes of four magnitudes: 0, 0.5, 1, 1.5, 2, 3, 4, 6.
__device__ __forceinline__ uint32_t upper_bytes(uint32_t codes) { return permute_bytes(0x3F3F3F00, 0x40404040, codes); }
__device__ __forceinline__ uint32_t lower_bytes(uint32_t codes) { return permute_bytes(0xC0800000, 0xC0804000, codes); }

struct PairsOfBytes {
    static constexpr int LANES = 32;
    alignas(LANES * 4) uint32_t of[256][LANES];

    // By so many threads, which then synchronise.
    __device__ __forceinline__ void fill(int threads) {
        constexpr int AT_ONCE = 4;
#pragma unroll 1
        for (int i = threadIdx.x; i < 256 * LANES / AT_ONCE; i += threads) {
            const uint32_t byte = i * AT_ONCE / LANES, codes = byte & 0x77, signs = byte << 12 & 0x8000 | byte << 24 & 0x80000000;
            const uint32_t pair = permute_bytes(lower_bytes(codes), upper_bytes(codes), 0x5140) | signs;
            reinterpret_cast<uint4*>(of)[i] = make_uint4(pair, pair, pair, pair);
        }
    }
};

// A lane's copy of the table, and where in a word its bytes are: byte q of each word, for lane q of four.
struct LookUp {
    const uint8_t* pairs;
    uint32_t rotation, column;

    __device__ __forceinline__ void begin(const PairsOfBytes& table, int thread) {
        pairs = reinterpret_cast<const uint8_t*>(table.of);
        rotation = 7 - thread % 4 * 8;  // brings the byte to where it counts rows of 128 bytes
        column = thread % PairsOfBytes::LANES * 4;
    }
    __device__ __forceinline__ uint32_t pair(uint32_t word) const {
        const uint32_t row = __funnelshift_l(word, word, rotation) & 0xFF * sizeof(PairsOfBytes::of[0]);
        return *reinterpret_cast<const uint32_t*>(pairs + (row | column));
    }
};

}  // namespace zoo
