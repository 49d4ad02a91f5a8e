// From packed 4-bit weights to the words of e4m3 that a wgmma takes from registers. zoo/reference/fragments.py says where each bit
// lies, zoo/reference/four_bit_weights.py what a code and its scale become.
//
// A scale byte names one of 128 entries of a table in shared memory, of 256 where nvfp4 is stored and may be negative: the eight magnitudes
// that codes become under it, two words. A lane's 16 weights of a row and 64 of K have one scale, since K is permuted: one look-up serves them
// all. Of eight weights
//
//     word & 0x77777777           four selectors of a byte permutation, and in the upper half four more
//     two byte permutations       four magnitudes each
//     word & 0x80808080, word << 4 & 0x80808080      signs, where the packer put them: seven instructions in all
//
// Two scales of equal mantissa and exponents an even number apart meet in a bank, others do not: those of a warp lie close.
#pragma once

#include <cstdint>

#include "common/fp8.cuh"
#include "common/mbarrier.cuh"

namespace zoo {

constexpr int CHUNK_ROWS = 64, CHUNK = 64, CODE_BYTES = CHUNK_ROWS * CHUNK / 2;  // a chunk: rows, K, its bytes of codes

enum class Weights { nvfp4, mxfp4 };

// How they lie: packed, or as a checkpoint has them, plainly or as gates and ups (four_bit/stored.cuh).
enum class Laid { packed, stored, stored_gates };

// What a stored byte multiplies codes by: nvfp4: an e4m3, of which an eighth is taken; mxfp4: 2^(byte - 120), 0 for 0. 127: no number.
template <Weights WEIGHTS>
__device__ __forceinline__ float multiplier_of(uint32_t byte) {
    if constexpr (WEIGHTS == Weights::nvfp4) return Fp8<e4m3>::decode(byte) * 0.125f;
    if (byte == 127) return __uint_as_float(0x7FC00000);
    return byte == 0 ? 0.0f : __uint_as_float((min(byte, 126u) + 7) << 23);
}

template <Weights WEIGHTS>
__device__ __forceinline__ uint2 magnitudes_of(uint32_t byte) {
    const float s = multiplier_of<WEIGHTS>(byte);
    auto four = [&](float c0, float c1, float c2, float c3) {
        return uint32_t(Fp8<e4m3>::encode(c0 * s, c1 * s)) | uint32_t(Fp8<e4m3>::encode(c2 * s, c3 * s)) << 16;
    };
    return make_uint2(four(0, 0.5f, 1, 1.5f), four(2, 3, 4, 6));
}

// A lane's weights of one chunk as they are packed: word 2 s + h is of instruction s and of the upper (0) or lower (1) row.
struct PackedWeights {
    uint32_t words[4], scales[2];
};

// Zeros where there is none. `codes` and `scales`: where those of this lane lie.
__device__ __forceinline__ PackedWeights load_packed(uint32_t codes, uint32_t scales, bool exists) {
    PackedWeights packed = {};
    asm volatile(
        "{\n\t"
        ".reg .pred exists;\n\t"
        "setp.ne.u32 exists, %8, 0;\n\t"
        "@exists ld.shared.v4.u32 {%0, %1, %2, %3}, [%6];\n\t"
        "@exists ld.shared.u8 %4, [%7];\n\t"
        "@exists ld.shared.u8 %5, [%7 + 1];\n\t"
        "}"
        : "+r"(packed.words[0]), "+r"(packed.words[1]), "+r"(packed.words[2]), "+r"(packed.words[3]), "+r"(packed.scales[0]),
          "+r"(packed.scales[1])
        : "r"(codes), "r"(scales), "r"(uint32_t(exists))
        : "memory");
    return packed;
}

// Of the upper and the lower row's scale.
struct Entries {
    uint2 of[2];
};

__device__ __forceinline__ Entries look_up(const PackedWeights& packed, uint32_t table) {
    Entries entries;
#pragma unroll
    for (int h = 0; h < 2; h++)
        asm volatile("ld.shared.v2.u32 {%0, %1}, [%2];"
                     : "=r"(entries.of[h].x), "=r"(entries.of[h].y)
                     : "r"(table + packed.scales[h] * 8)
                     : "memory");
    return entries;
}

// As __byte_perm(), which masks selectors that have been masked once more.
__device__ __forceinline__ uint32_t four_magnitudes(uint2 entry, uint32_t codes) {
    uint32_t four;
    asm("prmt.b32 %0, %1, %2, %3;" : "=r"(four) : "r"(entry.x), "r"(entry.y), "r"(codes));
    return four;
}

// The words of two wgmmas, 32 of K each.
__device__ __forceinline__ void unpack(const PackedWeights& packed, const Entries& entries, uint32_t (&words)[8]) {
#pragma unroll
    for (int s = 0; s < 2; s++)
#pragma unroll
        for (int h = 0; h < 2; h++) {
            const uint32_t word = packed.words[2 * s + h], codes = word & 0x77777777;
            words[4 * s + h] = four_magnitudes(entries.of[h], codes) | (word & 0x80808080);
            words[4 * s + h + 2] = four_magnitudes(entries.of[h], codes >> 16) | (word << 4 & 0x80808080);
        }
}

}  // namespace zoo
