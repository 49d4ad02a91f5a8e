// Unpacks 4-bit weights, packed or stored, to bf16 words in registers, the operand of wgmma. bf16/pipeline.cuh and gated/pipeline.cuh include this
// file. All products are exact: a code has two significant bits, a scale at most four, and bf16 eight.
//
// Packed weights (zoo/reference/fragments.py defines the layout). A lane has 16 bytes of each chunk: four words, one for each K step. A word has
// eight weights: four pairs of neighbouring columns, one pair for each register of the wgmma. The three magnitude bits of an e2m1 code become the
// lowest two exponent bits and the highest mantissa bit of a bf16. That bf16 is 2^-126 times the code; 0.5 becomes subnormal. For each pair:
//
//     a rotation              the first pair needs none; the last pair needs a product, because a word has no room for four such patterns
//     a mask                  keeps sign and magnitude of both weights
//     two multiplications     by a power of two, and by the scale of the row and the K step
//
// A scale byte becomes bits of a bf16, and the top bits of that bf16 are the same for all scales. One such multiplier cannot restore the
// exponent of a code, so the power of two restores the rest.
//
// Stored weights. A byte has the codes of two neighbouring columns. Four lanes read the same 16 bytes of their rows. Lane q unpacks byte q of each
// word. For four weights, one pair in each of two words:
//
//     a byte permutation         selects the bytes of both pairs
//     masks                      separate codes and signs; signs are in the upper bytes
//     two byte permutations      look up the upper and the lower byte of each magnitude, from tables in four registers
//     two byte permutations      join upper and lower bytes: two weights a word
//     two multiplications        by the scale of the row and the K step
//
// A tile that LOOKS_UP replaces all but the multiplications by the table of common/e2m1_to_bf16.cuh. An entry is the pair of a byte.
//
//     codes      64 weight rows x 128 bytes of a stage, by a tensor copy with the 128-byte swizzle
//     scales     a lane reads a quarter of a stage's scales, those of one chunk of its two rows, a stage ahead (ScalesAhead). It turns them into
//                multipliers, and shuffles distribute the multipliers to the other three lanes, a chunk at a time
//
// A shift turns a stored scale into a small bf16, and an exact product with a power of two restores its size. Scales below the smallest normal e4m3
// become subnormal bf16.
#pragma once

#include <cstdint>
#include <type_traits>

#include "common/bf16_pairs.cuh"
#include "common/e2m1_to_bf16.cuh"
#include "common/mbarrier.cuh"
#include "common/nothing.cuh"
#include "common/warp.cuh"
#include "common/wgmma.cuh"
#include "gemm/hopper_w4/operands.cuh"
#include "gemm/hopper_w4/weights/stored.cuh"

namespace zoo {

// A lane's packed weights of a chunk: words[i] has the codes of both rows for instruction i. A scale is a byte. nvfp4: byte 2 j + h of scales[s]
// belongs to row h and instruction 2 s + j. mxfp4: byte 2 s + h of scales[0] belongs to row h and instructions 2 s and 2 s + 1.
struct PackedChunk {
    uint32_t words[4], scales[2];
};

// Spreads eight codes over four words of two bf16.
__device__ __forceinline__ void spread_pairs(uint32_t word, uint32_t (&pairs)[4]) {
    constexpr uint32_t PAIR = 0x81C081C0, LAST = 0x001B001B, MOVES = 1 << 14 | 1 << 8 | 1 << 3;
    pairs[0] = word & PAIR;
    pairs[1] = __funnelshift_r(word, word, 3) & PAIR;
    pairs[2] = __funnelshift_r(word, word, 6) & PAIR;
    pairs[3] = (word & LAST) * MOVES & PAIR;  // sign: bit 1; magnitude: bits 0, 4, 3; the copies do not overlap in PAIR
}

// `codes` and `scales`: shared addresses of this lane.
template <WeightFormat WEIGHTS>
__device__ __forceinline__ void load_chunk(PackedChunk& chunk, uint32_t codes, uint32_t scales) {
    asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(chunk.words[0]), "=r"(chunk.words[1]), "=r"(chunk.words[2]), "=r"(chunk.words[3])
                 : "r"(codes)
                 : "memory");
    if constexpr (WEIGHTS == WeightFormat::nvfp4)
        asm volatile("ld.shared.v2.u32 {%0, %1}, [%2];" : "=r"(chunk.scales[0]), "=r"(chunk.scales[1]) : "r"(scales) : "memory");
    else
        asm volatile("ld.shared.u32 %0, [%1];" : "=r"(chunk.scales[0]) : "r"(scales) : "memory");
}

// The bits of a multiplier that a scale byte gives (OWN), and the bits that all multipliers have. A multiplier is 2^119 times an
// e4m3 (nvfp4), or 2^121 times a power of two or NaN (mxfp4).
template <WeightFormat WEIGHTS>
struct ScaleBits {
    static constexpr bool NVFP4 = WEIGHTS == WeightFormat::nvfp4;
    static constexpr uint32_t OWN = NVFP4 ? 0x0FF00FF0 : 0x3FC03FC0, OF_ALL = NVFP4 ? 0x70007000 : 0x40004000;
    static constexpr int LOWEST = NVFP4 ? 4 : 6;
    static constexpr uint32_t POWER = NVFP4 ? 0x41804180 : 0x42004200;  // 2^4 restores an eighth of the e4m3; 2^5, the power

    // Row h, half s of a chunk. The halves of the word are two instructions (nvfp4) or the two halves of the chunk (mxfp4).
    static __device__ __forceinline__ uint32_t multipliers(const PackedChunk& chunk, int s, int h, uint32_t of_all) {
        const uint32_t bytes = chunk.scales[NVFP4 ? s : 0];
        return (h == 0 ? bytes << LOWEST : bytes >> (8 - LOWEST)) & OWN | of_all;
    }
};

// Unpacks the words of instruction I of half S of a chunk.
template <int S, int I, WeightFormat WEIGHTS>
__device__ __forceinline__ void unpack_instruction(const PackedChunk& chunk, const uint32_t (&multipliers)[2],
                                                   uint32_t (&words)[8]) {
    constexpr int HALF = WEIGHTS == WeightFormat::nvfp4 ? I : S;
    uint32_t pairs[4];
    spread_pairs(chunk.words[2 * S + I], pairs);
#pragma unroll
    for (int r = 0; r < 4; r++)
        words[4 * I + r] = multiply_by_half<HALF>(multiply_pairs(pairs[r], ScaleBits<WEIGHTS>::POWER), multipliers[r % 2]);
}

// Loads and unpacks the packed weights of this lane.
template <class Tile>
struct PackedBf16Weights {
    using Ahead = PackedChunk;
    static constexpr bool WHOLE = true;  // one load brings both halves of a chunk
    static constexpr bool LOOKS_UP_AHEAD = false;

    static constexpr WeightFormat FORMAT = Tile::FORMAT;

    uint32_t codes_at, scales_at, of_all;

    __device__ __forceinline__ explicit PackedBf16Weights(const Tile& tile) {
        const int thread = threadIdx.x % WARPGROUP;
        const uint32_t weights = shared_address(tile.weights[0][warpgroup_index()]);
        codes_at = weights + thread * 16;
        scales_at = weights + CODE_BYTES + thread / 4 * (FORMAT == WeightFormat::nvfp4 ? 8 : 4);
        of_all = same_in_all_lanes(ScaleBits<FORMAT>::OF_ALL);  // in a register: a constant would be reloaded for each chunk
        asm volatile("" : "+r"(codes_at), "+r"(scales_at));     // and so would these
    }

    // `at`: the chunk's offset from the first chunk.
    __device__ __forceinline__ void load(PackedChunk& chunk, uint32_t at, int) const {
        load_chunk<FORMAT>(chunk, codes_at + at, scales_at + at);
    }

    // Unpacks the words of two wgmmas, 16 columns of K each.
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

// Half a chunk of two rows, 32 columns of K. Word 4 h + w is word w of the upper (h = 0) or the lower (h = 1) row.
struct StoredHalf {
    uint32_t words[8];
};

// Multipliers from scales, two in a word. nvfp4: half i of word h is instruction i, row h. mxfp4: half h of word 0 is row h.
template <WeightFormat WEIGHTS>
struct Multipliers {
    uint32_t words[WEIGHTS == WeightFormat::nvfp4 ? 2 : 1];

    __device__ __forceinline__ Multipliers() {}
    // A byte of 127 is NaN. Adding 1 sets its top bit, which a permutation spreads over 16 bits.
    __device__ __forceinline__ explicit Multipliers(uint32_t scales) {
        const uint32_t more = scales + 0x01010101;
        if constexpr (WEIGHTS == WeightFormat::nvfp4) {
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
        return WEIGHTS == WeightFormat::nvfp4 ? multiply_by_half<I>(pair, words[H % (sizeof(words) / 4)])
                                              : multiply_by_half<H>(pair, words[0]);
    }
};

template <int I, int H, WeightFormat WEIGHTS>
__device__ __forceinline__ void unpack_stored_row(const StoredHalf& half, uint32_t pair, const Multipliers<WEIGHTS>& multipliers,
                                                  uint32_t (&words)[8]) {
    const uint32_t both = permute_bytes(half.words[4 * H + 2 * I], half.words[4 * H + 2 * I + 1], pair);
    const uint32_t codes = both & 0x7777, signs = signs_of<0x5140>(both);
    const uint32_t upper = upper_bytes(codes) | signs, lower = lower_bytes(codes);
    words[4 * I + H] = multipliers.template times<I, H>(permute_bytes(lower, upper, 0x5140));
    words[4 * I + H + 2] = multipliers.template times<I, H>(permute_bytes(lower, upper, 0x7362));
}

// Loads and unpacks the stored weights of this lane.
template <class Tile>
struct StoredBf16Weights {
    using Ahead = StoredHalf;
    static constexpr bool WHOLE = false;                                                            // a load brings half a chunk
    static constexpr bool LOOKS_UP_AHEAD = Tile::LOOKS_UP && Tile::LAYOUT == WeightLayout::stored;  // gates and ups would spill
    static constexpr WeightFormat FORMAT = Tile::FORMAT;
    static constexpr bool NVFP4 = FORMAT == WeightFormat::nvfp4;
    static constexpr int ROW_BYTES = 128;
    static constexpr int WORDS = sizeof(Multipliers<FORMAT>::words) / 4;

    uint32_t pair, row_at, swizzle;
    std::conditional_t<Tile::LOOKS_UP, LookUp, Nothing> table;
    uint32_t found[8];
    int lower[2];  // bytes from the upper row to the lower row, for each half of a chunk
    ScalesAhead<FORMAT> ahead;
    int above[2];            // mxfp4: turns a stored scale into the scale that packed weights have
    uint32_t own[2][WORDS];  // multipliers of this lane's chunk, by halves

    __device__ __forceinline__ StoredBf16Weights(const Tile& tile, const StoredScales<RowsOfLane<Tile>>& scales,
                                                 const Work& work) {
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

    // `chunk`: the chunk's offset from the first chunk. Chunks follow each other along a row.
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
                // Byte 2 i + h is the scale of instruction i, row h.
                const uint32_t scales = __byte_perm(ahead.soon[0], ahead.soon[1], s == 0 ? 0x5140 : 0x7362);
                const Multipliers<FORMAT> made(scales & 0x7F7F7F7F);
                own[s][0] = made.words[0] | (scales << 8 & 0x80008000);  // a negative scale flips the signs of its codes
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
    // A whole warp calls this.
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
