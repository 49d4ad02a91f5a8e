// 4-bit weights as a checkpoint stores them, times bf16: rows of codes, two in a byte, the first in the lower half, and rows of scales.
//
// A byte is a pair of columns, so lane q of four takes byte q of each word, and signs are at the top of its halves. All four lanes read the same 16
// bytes of their rows. Of four weights, a pair in each of two words
//
//     a byte permutation          the bytes of both pairs
//     masks                       codes; signs, in the upper bytes
//     two byte permutations       the upper and the lower byte of each magnitude, from tables that four registers hold
//     two byte permutations       upper and lower bytes meet: two weights a word
//     two multiplications         by the scale of the row and the instruction
//
// or, where a tile LOOKS_UP, by the table of bf16_bytes.cuh: an entry is the pair of a byte.
//
// The products are exact, for a code has two significant bits, a scale at most four, and bf16 eight. A scale becomes bf16 by a shift, which
// leaves it small, and an exact product with a power of two; of scales below the smallest normal e4m3 the shift makes subnormal bf16.
//
//     codes     64 rows x 128 bytes of a stage, by the copy engine, with the swizzle of 128 bytes
//     scales    each of the four lanes reads a quarter of a stage's, those of one chunk of two rows, a stage before they are wanted
//               (ScalesAhead), and makes of them what weights are multiplied by; the others get that by shuffles, a chunk at a time
#pragma once

#include <cstdint>

#include "gemm/four_bit/bf16_pairs.cuh"
#include "gemm/four_bit/bf16_tile.cuh"
#include "gemm/four_bit/stored.cuh"

namespace zoo {

// Half a chunk of two rows, 32 of K: words 4 h + w of the upper (0) or the lower (1) row.
struct StoredHalf {
    uint32_t words[8];
};

// What weights are multiplied by, two in a word. nvfp4: of(i, h) is half i of word h; mxfp4: half h of word 0.
template <Weights WEIGHTS>
struct Multipliers {
    uint32_t words[WEIGHTS == Weights::nvfp4 ? 2 : 1];

    __device__ __forceinline__ Multipliers() {}
    // A byte of 127 is no number: one more has the sign that a permutation spreads over 16 bits.
    __device__ __forceinline__ explicit Multipliers(uint32_t scales) {
        const uint32_t more = scales + 0x01010101;
        if constexpr (WEIGHTS == Weights::nvfp4) {
            constexpr uint32_t POWER = 0x7A007A00;  // 2^117: an e4m3 with the exponent of a bf16 is 2^-120 of itself
            words[0] = multiply_pairs(scales << 4 & 0x07F007F0 | permute_bytes(more, more, 0xAA88), POWER);
            words[1] = multiply_pairs(scales >> 4 & 0x07F007F0 | permute_bytes(more, more, 0xBB99), POWER);
        } else {
            constexpr uint32_t POWER = 0x43004300;  // 2^7
            words[0] = multiply_pairs(permute_bytes(scales, 0, 0x4140) << 7 | permute_bytes(more, more, 0x9988), POWER);
        }
    }

    template <int I, int H>
    __device__ __forceinline__ uint32_t times(uint32_t pair) const {
        return WEIGHTS == Weights::nvfp4 ? multiply_by_half<I>(pair, words[H % (sizeof(words) / 4)])
                                         : multiply_by_half<H>(pair, words[0]);
    }
};

template <int I, int H, Weights WEIGHTS>
__device__ __forceinline__ void unpack_stored_row(const StoredHalf& half, uint32_t pair, const Multipliers<WEIGHTS>& multipliers,
                                                  uint32_t (&words)[8]) {
    const uint32_t both = permute_bytes(half.words[4 * H + 2 * I], half.words[4 * H + 2 * I + 1], pair);
    const uint32_t codes = both & 0x7777, signs = signs_of<0x5140>(both);
    const uint32_t upper = upper_bytes(codes) | signs, lower = lower_bytes(codes);
    words[4 * I + H] = multipliers.template times<I, H>(permute_bytes(lower, upper, 0x5140));
    words[4 * I + H + 2] = multipliers.template times<I, H>(permute_bytes(lower, upper, 0x7362));
}

// Where this lane's words lie, and what they become.
template <class Tile>
struct StoredHalves {
    using Ahead = StoredHalf;
    static constexpr bool WHOLE = false;                                                  // each half of a chunk comes by itself
    static constexpr bool LOOKS_UP_AHEAD = Tile::LOOKS_UP && Tile::LAID == Laid::stored;  // those of gates would spill
    static constexpr Weights FORMAT = Tile::FORMAT;
    static constexpr bool NVFP4 = FORMAT == Weights::nvfp4;
    static constexpr int ROW_BYTES = 128;
    static constexpr int WORDS = sizeof(Multipliers<FORMAT>::words) / 4;

    uint32_t pair, row_at, swizzle;
    std::conditional_t<Tile::LOOKS_UP, LookUp, Nothing> table;
    uint32_t found[8];
    int lower[2];  // how many bytes the lower row's are further, of either half of a chunk
    ScalesAhead<FORMAT> ahead;
    int above[2];            // of mxfp4: what makes of a scale the one that packed weights have
    uint32_t own[2][WORDS];  // multipliers of this lane's chunk, of its halves

    __device__ __forceinline__ StoredHalves(const Tile& tile, const StoredScales<RowsOfLane<Tile>>& scales, const Work& work) {
        const auto& rows = scales.of_lane;
        const int thread = threadIdx.x, of_tile = rows.upper_from_there(thread), row = rows.upper(work, thread);
        pair = 0x40 + thread % 4 * 0x11;
        if constexpr (Tile::LOOKS_UP) table.begin(tile.pairs, thread);
        row_at = rows.rows_at(tile) + of_tile * ROW_BYTES;
        swizzle = of_tile % 8 * 16;
#pragma unroll
        for (int s = 0; s < 2; s++) lower[s] = rows.bytes_apart(s);
        if constexpr (!NVFP4)
#pragma unroll
            for (int h = 0; h < 2; h++)
                above[h] = row + rows.apart() * h < scales.rows ? 126 - scales.largest_of(work.group, row + rows.apart() * h) : 0;
        ahead.begin(scales, work, row, thread % 4);
    }

    // Of the chunk that lies so far behind the first: stages follow each other as those of rows, their chunks along a row.
    __device__ __forceinline__ void load(StoredHalf& half, uint32_t chunk, int s) const {
        const uint32_t at = row_at + (chunk + s * 16 ^ swizzle);
#pragma unroll
        for (int h = 0; h < 2; h++)
            asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
                         : "=r"(half.words[4 * h]), "=r"(half.words[4 * h + 1]), "=r"(half.words[4 * h + 2]),
                           "=r"(half.words[4 * h + 3])
                         : "r"(at + h * lower[s])
                         : "memory");
    }

    __device__ __forceinline__ void begin_stage() {
        if constexpr (NVFP4) {
#pragma unroll
            for (int s = 0; s < 2; s++) {
                const uint32_t scales = __byte_perm(ahead.soon[0], ahead.soon[1], s == 0 ? 0x5140 : 0x7362);  // bytes 2 i + h
                const Multipliers<FORMAT> made(scales & 0x7F7F7F7F);
                own[s][0] = made.words[0] | (scales << 8 & 0x80008000);  // a negative scale turns its codes' signs
                own[s][WORDS - 1] = made.words[WORDS - 1] | (scales & 0x80008000);
            }
        } else {
            uint32_t rebased[2][2];
#pragma unroll
            for (int h = 0; h < 2; h++)
#pragma unroll
                for (int s = 0; s < 2; s++) {
                    const int scale = ahead.soon[h] >> 8 * s & 0xFF;
                    rebased[s][h] = scale == 255 ? 127 : max(min(scale + above[h], 126), 0);
                }
#pragma unroll
            for (int s = 0; s < 2; s++) own[s][0] = Multipliers<FORMAT>(rebased[s][0] | rebased[s][1] << 8).words[0];
        }
        ahead.read();
    }

    __device__ __forceinline__ void look_up(const StoredHalf& half) {
#pragma unroll
        for (int i = 0; i < 8; i++) found[i] = table.pair(half.words[i]);
    }
    // By a whole warp.
    __device__ __forceinline__ void unpack(const StoredHalf& half, int chunk, int s, uint32_t (&words)[8]) {
        if (chunk == 0 && s == 0) begin_stage();
        Multipliers<FORMAT> multipliers;
#pragma unroll
        for (int i = 0; i < WORDS; i++) multipliers.words[i] = __shfl_sync(~0u, own[s][i], chunk, 4);
        if constexpr (Tile::LOOKS_UP) {
            if constexpr (!LOOKS_UP_AHEAD) look_up(half);
#pragma unroll
            for (int i = 0; i < 2; i++) {
                words[2 * i] = multipliers.template times<0, 0>(found[i]);
                words[2 * i + 1] = multipliers.template times<0, 1>(found[4 + i]);
                words[2 * i + 4] = multipliers.template times<1, 0>(found[2 + i]);
                words[2 * i + 5] = multipliers.template times<1, 1>(found[6 + i]);
            }
        } else {
            unpack_stored_row<0, 0>(half, pair, multipliers, words);
            unpack_stored_row<0, 1>(half, pair, multipliers, words);
            unpack_stored_row<1, 0>(half, pair, multipliers, words);
            unpack_stored_row<1, 1>(half, pair, multipliers, words);
        }
    }
};

}  // namespace zoo
