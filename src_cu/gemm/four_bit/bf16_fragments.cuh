// From packed 4-bit weights to the words of bf16 that a wgmma takes from registers: the packed bytes of fragments.cuh, K in its order.
//
// Columns are packed for FP8: lane q of four has 16 weights of a row that follow each other in K. A wgmma of 16 of K wants of each eight
// columns the pair 2 q, 2 q + 1 in lane q. So instruction i of the four that 64 of K take is what lane i of the four has packed, and each of
// the four reads those 16 bytes and takes its pair of every word. Bytes and signs of a pair lie where q says: selectors that a lane keeps.
//
// Of four weights, a pair in each of two words
//
//     two byte permutations       the codes of both pairs; the bytes in which their signs are
//     two masks                   codes; signs, at the top of their bytes by a product with 1 or 16, into the upper bytes
//     two byte permutations       the upper and the lower byte of each magnitude, from tables that four registers hold
//     two byte permutations       upper and lower bytes meet: two weights a word
//     two multiplications         by the scale of the row and the instruction
//
// The products are exact, for a code has two significant bits, a scale at most four, and bf16 eight. A scale becomes bf16 by a shift, which
// leaves it small, and an exact product with a power of two; of scales below the smallest normal e4m3 the shift makes subnormal bf16.
#pragma once

#include <cstdint>

#include "common/mbarrier.cuh"
#include "gemm/four_bit/fragments.cuh"

namespace zoo {

__device__ __forceinline__ uint32_t multiply_pairs(uint32_t pair, uint32_t factors) {
    uint32_t product;
    asm("mul.rn.bf16x2 %0, %1, %2;" : "=r"(product) : "r"(pair), "r"(factors));
    return product;
}

// Both by one half of `factors`.
template <int HALF>
__device__ __forceinline__ uint32_t multiply_by_half(uint32_t pair, uint32_t factors) {
    uint32_t product;
    asm("{\n\t"
        ".reg .b16 halves<2>;\n\t"
        ".reg .b32 both;\n\t"
        "mov.b32 {halves0, halves1}, %2;\n\t"
        "mov.b32 both, {halves%3, halves%3};\n\t"
        "mul.rn.bf16x2 %0, %1, both;\n\t"
        "}"
        : "=r"(product)
        : "r"(pair), "r"(factors), "n"(HALF));
    return product;
}

// All four bits of a selector count, as __byte_perm has only three: the fourth spreads a byte's sign.
__device__ __forceinline__ uint32_t permute_bytes(uint32_t low, uint32_t high, uint32_t selector) {
    uint32_t bytes;
    asm("prmt.b32 %0, %1, %2, %3;" : "=r"(bytes) : "r"(low), "r"(high), "r"(selector));
    return bytes;
}

// What lane q of four takes from two words of eight weights.
struct PairOfLane {
    uint32_t codes, signs, sign_factor;

    __device__ __forceinline__ explicit PairOfLane(uint32_t q)
        : codes(0x40 + q * 0x11), signs(q % 2 == 0 ? 0x5410 : 0x7632), sign_factor(q < 2 ? 1 : 16) {}
};

// What two instructions, 32 of K, take: words 4 i + 2 s + h of instruction i, its columns from 8 s on, the upper (0) or the lower (1) row.
struct PackedHalf {
    uint32_t words[8];
    uint32_t scales;  // nvfp4: bytes 2 i + h; mxfp4: bytes h
};

// `codes` and `scales`: where those of this lane's four lie.
template <Weights WEIGHTS>
__device__ __forceinline__ void load_half(PackedHalf& half, uint32_t codes, uint32_t scales) {
#pragma unroll
    for (int i = 0; i < 2; i++)
        asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
                     : "=r"(half.words[4 * i]), "=r"(half.words[4 * i + 1]), "=r"(half.words[4 * i + 2]),
                       "=r"(half.words[4 * i + 3])
                     : "r"(codes + 16 * i)
                     : "memory");
    if constexpr (WEIGHTS == Weights::nvfp4) {
        asm volatile("ld.shared.u32 %0, [%1];" : "=r"(half.scales) : "r"(scales) : "memory");
    } else {
        uint16_t two;
        asm volatile("ld.shared.u16 %0, [%1];" : "=h"(two) : "r"(scales) : "memory");
        half.scales = two;
    }
}

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

// The words of one row that instruction I takes.
template <int I, int H, Weights WEIGHTS>
__device__ __forceinline__ void unpack_row(const PackedHalf& half, const PairOfLane& lane,
                                           const Multipliers<WEIGHTS>& multipliers, uint32_t (&words)[8]) {
    // 0, 0.5, 1, 1.5 and 2, 3, 4, 6
    constexpr uint32_t UPPER[2] = {0x3F3F3F00, 0x40404040}, LOWER[2] = {0xC0800000, 0xC0804000};
    const uint32_t first = half.words[4 * I + H], second = half.words[4 * I + 2 + H];
    const uint32_t codes = permute_bytes(first, second, lane.codes) & 0x7777;
    const uint32_t signs = permute_bytes(first, second, lane.signs) * lane.sign_factor & 0x80808080;
    const uint32_t upper = permute_bytes(UPPER[0], UPPER[1], codes) | signs, lower = permute_bytes(LOWER[0], LOWER[1], codes);
    words[4 * I + H] = multipliers.template times<I, H>(permute_bytes(lower, upper, 0x5140));
    words[4 * I + H + 2] = multipliers.template times<I, H>(permute_bytes(lower, upper, 0x7362));
}

// The words of two wgmmas, 16 of K each.
template <Weights WEIGHTS>
__device__ __forceinline__ void unpack_half(const PackedHalf& half, const PairOfLane& lane, uint32_t (&words)[8]) {
    const Multipliers<WEIGHTS> multipliers(half.scales);
    unpack_row<0, 0>(half, lane, multipliers, words);
    unpack_row<0, 1>(half, lane, multipliers, words);
    unpack_row<1, 0>(half, lane, multipliers, words);
    unpack_row<1, 1>(half, lane, multipliers, words);
}

}  // namespace zoo
