// From packed 4-bit weights to the words of bf16 that a wgmma takes from registers: as fragments.cuh, of the same packed bytes, with
// two bytes for a weight. Of four weights
//
//     two byte permutations       the upper and the lower byte of each magnitude, from tables that four registers hold
//     word & 0x80808080           signs, into the upper bytes
//     two byte permutations       upper and lower bytes meet: two weights a word
//     two multiplications         by the scale, in both halves of a word, which shared memory has for each of 128 scale bytes
//
// Twelve instructions for eight weights beside four multiplications, which other lanes take. The products are exact, for a code has
// two significant bits, a scale at most four, and bf16 eight.
//
// A lane has 16 weights of a row that follow each other in K. Instruction i of the four that 64 of K take has those from 4 i on: of K
// it has 16 q + 4 i + 0 to 3, q < 4, and tokens lie in that order: bf16_load.cuh.
#pragma once

#include <cstdint>

#include "common/half.cuh"
#include "gemm/four_bit/fragments.cuh"

namespace zoo {

// In both halves of a word.
template <Weights WEIGHTS>
__device__ __forceinline__ uint32_t bf16_multiplier_of(uint32_t byte) {
    const float multiplier = multiplier_of<WEIGHTS>(byte);
    return encode_pair<bf16>(multiplier, multiplier);
}

__device__ __forceinline__ uint32_t multiply_pair(uint32_t pair, uint32_t factors) {
    uint32_t product;
    asm("mul.rn.bf16x2 %0, %1, %2;" : "=r"(product) : "r"(pair), "r"(factors));
    return product;
}

// A lane's weights of a chunk and what to multiply those of the upper and of the lower row by.
struct ScaledWeights {
    uint32_t words[4];
    uint32_t multipliers[2];
};

__device__ __forceinline__ ScaledWeights load_scaled(uint32_t codes, uint32_t scales, uint32_t multipliers) {
    const PackedWeights packed = load_packed(codes, scales);
    ScaledWeights scaled = {{packed.words[0], packed.words[1], packed.words[2], packed.words[3]}, {}};
#pragma unroll
    for (int h = 0; h < 2; h++)
        asm volatile("ld.shared.u32 %0, [%1];"
                     : "=r"(scaled.multipliers[h])
                     : "r"(multipliers + (packed.scales >> 8 * h & 0xFF) * 4)
                     : "memory");
    return scaled;
}

// The words of the two wgmmas, 16 of K each, that half `s` of a chunk takes.
__device__ __forceinline__ void unpack_bf16(const ScaledWeights& scaled, int s, uint32_t (&words)[8]) {
    // 0, 0.5, 1, 1.5 and 2, 3, 4, 6
    constexpr uint32_t UPPER[2] = {0x3F3F3F00, 0x40404040}, LOWER[2] = {0xC0800000, 0xC0804000};
#pragma unroll
    for (int h = 0; h < 2; h++) {
        const uint32_t word = scaled.words[2 * s + h], codes = word & 0x77777777;
#pragma unroll
        for (int i = 0; i < 2; i++) {  // of four weights each
            const uint32_t four = codes >> 16 * i, signs = word << 4 * i & 0x80808080;
            const uint32_t upper = __byte_perm(UPPER[0], UPPER[1], four) | signs, lower = __byte_perm(LOWER[0], LOWER[1], four);
            words[4 * i + h] = multiply_pair(__byte_perm(lower, upper, 0x5140), scaled.multipliers[h]);
            words[4 * i + h + 2] = multiply_pair(__byte_perm(lower, upper, 0x7362), scaled.multipliers[h]);
        }
    }
}

}  // namespace zoo
