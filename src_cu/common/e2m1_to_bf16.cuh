// A byte of two e2m1 codes to two bf16: computed, or read from a table of 256 entries. The table has a copy of each entry for every lane, 32 KB, so
// no two lanes of a warp meet in a bank. A look-up needs a load, a rotation and a mask; computing a pair needs 4.5 byte permutations.
#pragma once

#include <cstdint>

#include "common/bf16_pairs.cuh"

namespace zoo {

// Upper and lower bytes of four magnitudes: 0, 0.5, 1, 1.5, 2, 3, 4, 6.
__device__ __forceinline__ uint32_t upper_bytes(uint32_t codes) { return permute_bytes(0x3F3F3F00, 0x40404040, codes); }
__device__ __forceinline__ uint32_t lower_bytes(uint32_t codes) { return permute_bytes(0xC0800000, 0xC0804000, codes); }

struct PairsOfBytes {
    static constexpr int LANES = 32;
    alignas(LANES * 4) uint32_t of[256][LANES];

    // `threads` threads call this, and then synchronise.
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
        rotation = 7 - thread % 4 * 8;  // moves the byte to bit 7, so it counts rows of 128 bytes
        column = thread % PairsOfBytes::LANES * 4;
    }
    __device__ __forceinline__ uint32_t pair(uint32_t word) const {
        const uint32_t row = __funnelshift_l(word, word, rotation) & 0xFF * sizeof(PairsOfBytes::of[0]);
        return *reinterpret_cast<const uint32_t*>(pairs + (row | column));
    }
};

}  // namespace zoo
