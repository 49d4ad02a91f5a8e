// The words of one block of K, four chunks of 64, on their way from a stage to wgmma.
#pragma once

#include <cstdint>

#include "common/wgmma.cuh"
#include "common/wgmma_registers.cuh"
#include "gemm/four_bit/tile.cuh"

namespace zoo {

template <class Tile>
struct BlockOfWords {
    static constexpr int TURNS = Tile::TURNS, COLUMNS = Tile::TOKENS / TURNS, PARTIAL = COLUMNS / 2;  // of a turn
    static constexpr int UNIT = 16;                                                                   // of a descriptor's address
    static_assert(TURNS == 1 || TURNS == 2);

    uint32_t words[PROMOTED_CHUNKS][8];
    uint32_t codes, scales;              // of this lane, in the stage that is unpacked
    uint32_t first_codes, first_scales;  // in stage 0, where the tile holds places
    uint32_t tokens;                     // in the stage that is multiplied: the lower word of a descriptor

    // Before the first block.
    __device__ __forceinline__ void find_places(const Tile& tile) {
        if constexpr (Tile::HOLDS_PLACES) {
            find_places_in(tile, 0, threadIdx.x % WARPGROUP);
            first_codes = codes, first_scales = scales;
        }
    }
    __device__ __forceinline__ void unpack_from(const Tile& tile, int stage) {
        if constexpr (Tile::HOLDS_PLACES) {
            codes = first_codes + stage * sizeof(tile.weights[0]);
            scales = first_scales + stage * sizeof(tile.weights[0]);
            asm volatile("" : "+r"(codes), "+r"(scales));  // or they are computed anew for each chunk
        } else {
            find_places_in(tile, stage, thread_index_anew() % WARPGROUP);
        }
    }
    __device__ __forceinline__ PackedWeights load(int chunk, int left) const {
        return load_packed(codes + chunk * Tile::CHUNK_BYTES, scales + chunk * Tile::CHUNK_BYTES, left > chunk);
    }
    __device__ __forceinline__ void multiply_from(const Tile& tile, int stage) {
        tokens = uint32_t(matrix_descriptor(tile.tokens[stage][0]));
    }
    __device__ __forceinline__ void multiply(int turn, int chunk, float (&partial)[PARTIAL], bool begins) const {
        const uint32_t at = tokens + chunk / 2 * (Tile::TOKENS * 128 / UNIT) + turn * (COLUMNS * 128 / UNIT);
#pragma unroll
        for (int s = 0; s < 2; s++) {
            const uint64_t rows = matrix_descriptor(nullptr) | uint32_t(at + chunk % 2 * 4 + s * 2);
            multiply_registers<COLUMNS>(partial, words[chunk] + 4 * s, rows, s > 0 || !begins);
        }
    }

   private:
    __device__ __forceinline__ void find_places_in(const Tile& tile, int stage, int thread) {
        const uint32_t at = shared_address(tile.weights[0][warpgroup_index()]) + stage * sizeof(tile.weights[0]);
        codes = at + thread * 16;
        scales = at + CODE_BYTES + (Tile::FORMAT == Weights::nvfp4 ? thread * 2 : thread / 2 * 2);
        asm volatile("" : "+r"(codes), "+r"(scales));
    }
};

}  // namespace zoo
