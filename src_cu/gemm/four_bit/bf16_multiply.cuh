// The loop over K of a product of bf16 and 4-bit weights, by one warpgroup. A turn is half a chunk of one part: two wgmmas of 16 of K.
// While the tensor cores are at one turn, the words of the next are unpacked; the packed words of the chunk after that are on their way.
//
//     tensor cores    ####0#### ####1#### ####2#### ####3####
//     the lanes       unpack 1  unpack 2  unpack 3  unpack 4
//
// Sums stay where they are over all of K: they keep all the bits that f32 has. What this adds up: zoo/reference/four_bit_gemm.py.
#pragma once

#include <cstdint>

#include "common/wgmma.cuh"
#include "common/wgmma_registers_bf16.cuh"
#include "gemm/four_bit/bf16_tile.cuh"

namespace zoo {

// `exist`: how many parts of this warpgroup's lie within the matrix; others count as zeros.
template <class Tile>
__device__ __forceinline__ void multiply_bf16(Tile& tile, Ring<Tile::STAGES>& ring, int chunks, int exist,
                                              float (&sums)[Tile::PARTS][Tile::SUMS]) {
    constexpr int PARTS = Tile::PARTS, TURNS = 2 * PARTS,
                  INSTRUCTION = 32 / 16;  // bytes of K, in units of a descriptor's address
    const int thread = threadIdx.x % WARPGROUP;
    const uint32_t weights = shared_address(tile.weights[0][warpgroup_index()]);
    const uint32_t codes_at = weights + thread * 16;
    const uint32_t scales_at = weights + CODE_BYTES + (Tile::FORMAT == Weights::nvfp4 ? thread * 2 : thread / 2 * 2);
    const uint32_t multipliers = shared_address(tile.multipliers);

    ScaledWeights now[PARTS], next[PARTS] = {};
    auto fetch = [&](int stage, int place) {  // the chunk at this place of a stage
#pragma unroll
        for (int p = 0; p < PARTS; p++) {
            const uint32_t at =
                stage * sizeof(tile.weights[0]) + p * Tile::WARPGROUPS * sizeof(tile.weights[0][0]) + place * Tile::CHUNK_BYTES;
            if (p < exist) next[p] = load_scaled(codes_at + at, scales_at + at, multipliers);
        }
    };
    uint32_t words[2][8];
#pragma unroll
    for (int p = 0; p < PARTS; p++)
#pragma unroll
        for (int j = 0; j < Tile::SUMS; j++) sums[p][j] = 0;
    if (chunks == 0) return;
    tile.wait_until_full(ring);
    fetch(ring.stage, 0);
    unpack_bf16(next[0], 0, words[0]);
    int stage = ring.stage, place = 0,
        done = -1;  // done: a stage whose wgmmas are over as soon as those of the next turn are under way
    for (; chunks > 0; chunks--) {
        const uint64_t tokens = matrix_descriptor(tile.tokens[stage][place]);
#pragma unroll
        for (int p = 0; p < PARTS; p++) now[p] = next[p];
        int next_stage = stage;
        place++;
#pragma unroll
        for (int turn = 0; turn < TURNS; turn++) {
            const int s = turn / PARTS, p = turn % PARTS;
            hold(sums[p]);
            fence_registers();
            multiply_bf16_registers<Tile::TOKENS>(sums[p], words[turn % 2], tokens + 2 * s * INSTRUCTION);
            multiply_bf16_registers<Tile::TOKENS>(sums[p], words[turn % 2] + 4, tokens + (2 * s + 1) * INSTRUCTION);
            commit_multiplications();
            hold(sums[p]);

            if (turn == TURNS - 2 && chunks > 1) {
                if (place == Tile::CHUNKS) {
                    ring.advance();
                    tile.wait_until_full(ring);
                    next_stage = ring.stage, place = 0;
                }
                fetch(next_stage, place);
            }
            wait_for_multiplications<1>();
            hold(words[(turn + 1) % 2]);
            if (turn == 0 && done >= 0) {
                tile.release(done);
                done = -1;
            }
            if (turn + 1 < TURNS)
                unpack_bf16(now[(turn + 1) % PARTS], (turn + 1) / PARTS, words[(turn + 1) % 2]);
            else
                unpack_bf16(next[0], 0, words[0]);
        }
        if (next_stage != stage) done = stage;
        stage = next_stage;
    }
    wait_for_multiplications<0>();
#pragma unroll
    for (int p = 0; p < PARTS; p++) hold(sums[p]);
    if (done >= 0) tile.release(done);
    tile.release(stage);
    ring.advance();
}

}  // namespace zoo
