// Dequantizes packed 4-bit weights to e4m3 in registers, the operand of wgmma. zoo/reference/fragments.py defines the packed layout, and
// zoo/reference/four_bit_weights.py the value of a code and its scale. Included by all kernels with FP8 tokens.
//
// A scale byte selects an entry of a table in shared memory: the eight magnitudes of e2m1 codes times that scale, in two words. K is permuted so
// that a lane's 16 weights of a row and 64 columns share a scale, and one look-up serves all of them. For eight weights:
//
//     word & 0x77777777           four selectors of a byte permutation in each half
//     two byte permutations       four magnitudes each
//     word & 0x80808080, word << 4 & 0x80808080      signs, where the packer put them: seven instructions in all
//
// Two entries share a bank if their scale bytes are equal modulo 16. For NVFP4 this means equal mantissas, and exponents an even number apart. For
// MXFP4 it means exponents a multiple of 16 apart. Scales of a warp seldom collide.
#pragma once

#include <cstdint>

#include "common/fp8.cuh"
#include "common/wgmma.cuh"
#include "common/wgmma_registers.cuh"
#include "gemm/hopper_w4/operands.cuh"

namespace zoo {

// The multiplier of a scale byte. nvfp4: an eighth of the e4m3. mxfp4: 2^(byte - 120). Byte 0 means 0, byte 127 NaN. The packer stores
// 126 - (largest - scale) with the row's `largest` scale, by which the epilogue multiplies.
template <WeightFormat WEIGHTS>
__device__ __forceinline__ float multiplier_of(uint32_t byte) {
    if constexpr (WEIGHTS == WeightFormat::nvfp4) return Fp8<e4m3>::decode(byte) * 0.125f;
    if (byte == 127) return __uint_as_float(0x7FC00000);
    return byte == 0 ? 0.0f : __uint_as_float((min(byte, 126u) + 7) << 23);
}

template <WeightFormat WEIGHTS>
__device__ __forceinline__ uint2 magnitudes_of(uint32_t byte) {
    const float s = multiplier_of<WEIGHTS>(byte);
    auto four = [&](float c0, float c1, float c2, float c3) {
        return uint32_t(Fp8<e4m3>::encode(c0 * s, c1 * s)) | uint32_t(Fp8<e4m3>::encode(c2 * s, c3 * s)) << 16;
    };
    return make_uint2(four(0, 0.5f, 1, 1.5f), four(2, 3, 4, 6));
}

// A lane's packed weights of a chunk. Word 2 s + h belongs to instruction s and to the upper (h = 0) or lower row.
struct PackedWords {
    uint32_t words[4], scales[2];
};

// Returns zeros unless the chunk `exists`. `codes` and `scales` are this lane's shared memory addresses.
__device__ __forceinline__ PackedWords load_packed(uint32_t codes, uint32_t scales, bool exists) {
    PackedWords packed = {};
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

// Table entries of the upper and the lower row's scale.
struct RowMagnitudes {
    uint2 of[2];
};

__device__ __forceinline__ RowMagnitudes look_up(const PackedWords& packed, uint32_t table) {
    RowMagnitudes entries;
#pragma unroll
    for (int h = 0; h < 2; h++)
        asm volatile("ld.shared.v2.u32 {%0, %1}, [%2];"
                     : "=r"(entries.of[h].x), "=r"(entries.of[h].y)
                     : "r"(table + packed.scales[h] * 8)
                     : "memory");
    return entries;
}

// __byte_perm() would mask the selectors again.
__device__ __forceinline__ uint32_t four_magnitudes(uint2 entry, uint32_t codes) {
    uint32_t four;
    asm("prmt.b32 %0, %1, %2, %3;" : "=r"(four) : "r"(entry.x), "r"(entry.y), "r"(codes));
    return four;
}

// The words of two wgmmas, 32 columns of K each.
__device__ __forceinline__ void unpack(const PackedWords& packed, const RowMagnitudes& entries, uint32_t (&words)[8]) {
#pragma unroll
    for (int s = 0; s < 2; s++)
#pragma unroll
        for (int h = 0; h < 2; h++) {
            const uint32_t word = packed.words[2 * s + h], codes = word & 0x77777777;
            words[4 * s + h] = four_magnitudes(entries.of[h], codes) | (word & 0x80808080);
            words[4 * s + h + 2] = four_magnitudes(entries.of[h], codes >> 16) | (word << 4 & 0x80808080);
        }
}

// The weights of a K block in registers, and a lane's addresses of the next ones.
template <class Tile>
struct BlockFragments {
    static constexpr int DESCRIPTOR_STEP = 16;  // bytes: a descriptor counts addresses in these steps

    uint32_t words[PROMOTED_CHUNKS][8];
    uint32_t codes, scales;  // this lane's addresses in the stage that is dequantized
    // The addresses in stage 0. Reading the thread's index in the loop over K would stall every K block.
    uint32_t first_codes, first_scales;
    uint32_t tokens;  // the lower word of the descriptor of the stage that is multiplied

    // Called before the first K block.
    __device__ __forceinline__ void find_addresses(const Tile& tile) {
        const int thread = threadIdx.x % WARPGROUP;
        const uint32_t at = shared_address(tile.weights[0][warpgroup_index()]);
        first_codes = at + thread * 16;
        first_scales = at + CODE_BYTES + (Tile::FORMAT == WeightFormat::nvfp4 ? thread * 2 : thread / 2 * 2);
        asm volatile("" : "+r"(first_codes), "+r"(first_scales));
    }
    // load() then reads weights of this stage.
    __device__ __forceinline__ void set_unpacked_stage(const Tile& tile, int stage) {
        codes = first_codes + stage * sizeof(tile.weights[0]);
        scales = first_scales + stage * sizeof(tile.weights[0]);
        asm volatile("" : "+r"(codes), "+r"(scales));  // prevents a recomputation for each chunk
    }
    __device__ __forceinline__ PackedWords load(int chunk, int chunks_left) const {
        return load_packed(codes + chunk * Tile::CHUNK_BYTES, scales + chunk * Tile::CHUNK_BYTES, chunks_left > chunk);
    }
    // multiply() then reads tokens of this stage.
    __device__ __forceinline__ void set_multiplied_stage(const Tile& tile, int stage) {
        tokens = uint32_t(matrix_descriptor(tile.tokens[stage][0]));
    }
    template <int PARTIAL>
    __device__ __forceinline__ void multiply(int part, int chunk, float (&partial)[PARTIAL], bool begins) const {
        constexpr int COLUMNS = 2 * PARTIAL;
        const uint32_t at =
            tokens + chunk / 2 * (Tile::TOKENS * 128 / DESCRIPTOR_STEP) + part * (COLUMNS * 128 / DESCRIPTOR_STEP);
#pragma unroll
        for (int s = 0; s < 2; s++) {
            const uint64_t rows = matrix_descriptor(nullptr) | uint32_t(at + chunk % 2 * 4 + s * 2);
            multiply_registers<COLUMNS>(partial, words[chunk] + 4 * s, rows, s > 0 || !begins);
        }
    }
};

// The fragments of a tile: BlockFragments of packed weights. stored_words.cuh adds the case of stored weights.
template <class Tile>
struct FragmentsOfTile {
    static_assert(!Tile::STORED, "include gemm/hopper_w4/weights/stored_words.cuh");
    using type = BlockFragments<Tile>;
};
template <class Tile>
using FragmentsOf = typename FragmentsOfTile<Tile>::type;

}  // namespace zoo
