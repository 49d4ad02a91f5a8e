// From 4-bit weights packed for bf16 to the words of bf16 that a wgmma takes from registers. zoo/reference/fragments.py says where each bit lies.
//
// Of each chunk a lane has 16 bytes of its own: word i of four has the eight weights that are the lane's of instruction i, 16 of K, as pairs
// of neighbouring columns, one for each of the instruction's four registers. An e2m1 is a bf16 of exponents 0 to 3 if its three bits are where
// a bf16 has its lowest two bits of exponent and the highest of mantissa: 2^-126 of itself, 0.5 as a subnormal number. So of each pair
//
//     a rotation                  of the first none; of the last a product, for no four places of such a pattern fill a word
//     a mask                      sign and magnitude of both
//     two multiplications         by a power of two, and by the scale of the row and the instruction
//
// The scales' bytes are bits of a bf16 but for those at its top, which are the same for all: too large a number for one multiplication to bring
// back what exponents lack. All products are exact, for a code has two significant bits, a scale at most four, and bf16 eight.
#pragma once

#include <cstdint>

#include "common/mbarrier.cuh"
#include "common/warp.cuh"
#include "common/wgmma.cuh"
#include "gemm/four_bit/bf16_pairs.cuh"
#include "gemm/four_bit/fragments.cuh"

namespace zoo {

// A lane's weights of 64 of K of its two rows: a word of each instruction, and scales. nvfp4: word s of instructions 2 s and 2 s + 1, bytes
// 2 i + h of the instruction i of them and row h; mxfp4: one word, bytes 2 s + h of two instructions each.
struct PackedChunk {
    uint32_t words[4], scales[2];
};

// Two bf16 each.
__device__ __forceinline__ void spread_pairs(uint32_t word, uint32_t (&pairs)[4]) {
    constexpr uint32_t PAIR = 0x81C081C0, LAST = 0x001B001B, MOVES = 1 << 14 | 1 << 8 | 1 << 3;
    pairs[0] = word & PAIR;
    pairs[1] = __funnelshift_r(word, word, 3) & PAIR;
    pairs[2] = __funnelshift_r(word, word, 6) & PAIR;
    pairs[3] = (word & LAST) * MOVES & PAIR;  // sign: bit 1; magnitude: bits 0, 4, 3; copies do not meet where they are wanted
}

// `codes` and `scales`: where those of this lane lie.
template <Weights WEIGHTS>
__device__ __forceinline__ void load_chunk(PackedChunk& chunk, uint32_t codes, uint32_t scales) {
    asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(chunk.words[0]), "=r"(chunk.words[1]), "=r"(chunk.words[2]), "=r"(chunk.words[3])
                 : "r"(codes)
                 : "memory");
    if constexpr (WEIGHTS == Weights::nvfp4)
        asm volatile("ld.shared.v2.u32 {%0, %1}, [%2];" : "=r"(chunk.scales[0]), "=r"(chunk.scales[1]) : "r"(scales) : "memory");
    else
        asm volatile("ld.shared.u32 %0, [%1];" : "=r"(chunk.scales[0]) : "r"(scales) : "memory");
}

// The bits of a multiplier that a byte gives, and what all have: 2^119 of an e4m3; 2^121 of a power of two, or NaN.
template <Weights WEIGHTS>
struct ScaleBits {
    static constexpr bool NVFP4 = WEIGHTS == Weights::nvfp4;
    static constexpr uint32_t OWN = NVFP4 ? 0x0FF00FF0 : 0x3FC03FC0, OF_ALL = NVFP4 ? 0x70007000 : 0x40004000;
    static constexpr int LOWEST = NVFP4 ? 4 : 6;
    static constexpr uint32_t POWER =
        NVFP4 ? 0x41804180 : 0x42004200;  // what is missing to an eighth of the e4m3, and to the power: 2^4, 2^5

    // Of row h and half s of a chunk: a half for each instruction (nvfp4) or for each half of the chunk.
    static __device__ __forceinline__ uint32_t multipliers(const PackedChunk& chunk, int s, int h, uint32_t of_all) {
        const uint32_t bytes = chunk.scales[NVFP4 ? s : 0];
        return (h == 0 ? bytes << LOWEST : bytes >> (8 - LOWEST)) & OWN | of_all;
    }
};

// The words that instruction I of half S takes.
template <int S, int I, Weights WEIGHTS>
__device__ __forceinline__ void unpack_instruction(const PackedChunk& chunk, const uint32_t (&multipliers)[2],
                                                   uint32_t (&words)[8]) {
    constexpr int HALF = WEIGHTS == Weights::nvfp4 ? I : S;
    uint32_t pairs[4];
    spread_pairs(chunk.words[2 * S + I], pairs);
#pragma unroll
    for (int r = 0; r < 4; r++)
        words[4 * I + r] = multiply_by_half<HALF>(multiply_pairs(pairs[r], ScaleBits<WEIGHTS>::POWER), multipliers[r % 2]);
}

// Where this lane's chunks lie, and what they become.
template <class Tile>
struct PackedChunks {
    using Ahead = PackedChunk;
    static constexpr bool WHOLE = true;  // both halves of a chunk come at once
    static constexpr bool LOOKS_UP_AHEAD = false;

    static constexpr Weights FORMAT = Tile::FORMAT;

    uint32_t codes_at, scales_at, of_all;

    __device__ __forceinline__ explicit PackedChunks(const Tile& tile) {
        const int thread = threadIdx.x % WARPGROUP;
        const uint32_t weights = shared_address(tile.weights[0][warpgroup_index()]);
        codes_at = weights + thread * 16;
        scales_at = weights + CODE_BYTES + thread / 4 * (FORMAT == Weights::nvfp4 ? 8 : 4);
        of_all = same_in_all_lanes(ScaleBits<FORMAT>::OF_ALL);  // a constant would be made anew for each chunk
        asm volatile("" : "+r"(codes_at), "+r"(scales_at));     // as these would
    }

    // Of the chunk that lies so far behind the first.
    __device__ __forceinline__ void load(PackedChunk& chunk, uint32_t at, int) const {
        load_chunk<FORMAT>(chunk, codes_at + at, scales_at + at);
    }

    // The words of two wgmmas, 16 of K each.
    template <int S>
    __device__ __forceinline__ void unpack_half(const PackedChunk& chunk, uint32_t (&words)[8]) const {
        const uint32_t multipliers[2] = {ScaleBits<FORMAT>::multipliers(chunk, S, 0, of_all),
                                         ScaleBits<FORMAT>::multipliers(chunk, S, 1, of_all)};
        unpack_instruction<S, 0, FORMAT>(chunk, multipliers, words);
        unpack_instruction<S, 1, FORMAT>(chunk, multipliers, words);
    }
    __device__ __forceinline__ void unpack(const PackedChunk& chunk, int, int s, uint32_t (&words)[8]) const {
        if (s == 0)
            unpack_half<0>(chunk, words);
        else
            unpack_half<1>(chunk, words);
    }
};

}  // namespace zoo
