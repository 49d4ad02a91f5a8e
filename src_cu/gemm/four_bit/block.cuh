// The words of one block of K, four chunks of 64, on their way from a stage to wgmma.
#pragma once

#include <cstdint>

#include "common/wgmma.cuh"
#include "common/wgmma_registers.cuh"
#include "gemm/four_bit/tile.cuh"

namespace zoo {

template <class Tile>
struct BlockOfWords {
    static constexpr int UNIT = 16;  // of a descriptor's address

    uint32_t words[PROMOTED_CHUNKS][8];
    uint32_t codes, scales;  // of this lane, in the stage that is unpacked
    // In stage 0: who reads the thread's index in the loop over K waits for it in every block.
    uint32_t first_codes, first_scales;
    uint32_t tokens;  // in the stage that is multiplied: the lower word of a descriptor

    // Before the first block.
    __device__ __forceinline__ void find_places(const Tile& tile) {
        const int thread = threadIdx.x % WARPGROUP;
        const uint32_t at = shared_address(tile.weights[0][warpgroup_index()]);
        first_codes = at + thread * 16;
        first_scales = at + CODE_BYTES + (Tile::FORMAT == Weights::nvfp4 ? thread * 2 : thread / 2 * 2);
        asm volatile("" : "+r"(first_codes), "+r"(first_scales));
    }
    __device__ __forceinline__ void unpack_from(const Tile& tile, int stage) {
        codes = first_codes + stage * sizeof(tile.weights[0]);
        scales = first_scales + stage * sizeof(tile.weights[0]);
        asm volatile("" : "+r"(codes), "+r"(scales));  // or they are computed anew for each chunk
    }
    __device__ __forceinline__ PackedWeights load(int chunk, int left) const {
        return load_packed(codes + chunk * Tile::CHUNK_BYTES, scales + chunk * Tile::CHUNK_BYTES, left > chunk);
    }
    __device__ __forceinline__ void multiply_from(const Tile& tile, int stage) {
        tokens = uint32_t(matrix_descriptor(tile.tokens[stage][0]));
    }
    template <int PARTIAL>
    __device__ __forceinline__ void multiply(int turn, int chunk, float (&partial)[PARTIAL], bool begins) const {
        constexpr int COLUMNS = 2 * PARTIAL;
        const uint32_t at = tokens + chunk / 2 * (Tile::TOKENS * 128 / UNIT) + turn * (COLUMNS * 128 / UNIT);
#pragma unroll
        for (int s = 0; s < 2; s++) {
            const uint64_t rows = matrix_descriptor(nullptr) | uint32_t(at + chunk % 2 * 4 + s * 2);
            multiply_registers<COLUMNS>(partial, words[chunk] + 4 * s, rows, s > 0 || !begins);
        }
    }
};

}  // namespace zoo
