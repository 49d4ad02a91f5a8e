// The loop over K of a product of bf16 and 4-bit weights, by one warpgroup. A turn is half a chunk of one part: two wgmmas of 16 of K.
// While the tensor cores are at one turn, the words of the next are unpacked, and the packed words of the one after it are on their way.
//
//     tensor cores    ####0#### ####1#### ####2#### ####3####
//     the lanes       unpack 1  unpack 2  unpack 3  unpack 4
//     shared memory    read 2    read 3    read 4    read 5
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
    constexpr Weights FORMAT = Tile::FORMAT;
    constexpr int PARTS = Tile::PARTS, TURNS = 2 * PARTS, AHEAD = 2,
                  INSTRUCTION = 32 / 16;  // bytes of K, in units of a descriptor's address
    const int four = threadIdx.x % WARPGROUP / 4;
    const PairOfLane lane(threadIdx.x % 4);
    const uint32_t weights = shared_address(tile.weights[0][warpgroup_index()]);
    const uint32_t codes_at = weights + four * 64;
    const uint32_t scales_at = weights + CODE_BYTES + four * (FORMAT == Weights::nvfp4 ? 8 : 4);

    PackedHalf packed[AHEAD] = {};
    auto fetch = [&](PackedHalf& half, int stage, int place, int turn) {  // of the chunk at this place of a stage
        const int s = turn / PARTS, p = turn % PARTS;
        const uint32_t at = stage * sizeof(tile.weights[0]) + place * Tile::CHUNK_BYTES;
        const uint32_t of_part = p * Tile::WARPGROUPS * sizeof(tile.weights[0][0]);
        if (p < exist)
            load_half<FORMAT>(half, codes_at + at + of_part + s * 32,
                              scales_at + at + of_part + s * (FORMAT == Weights::nvfp4 ? 4 : 2));
    };
    uint32_t words[2][8];
#pragma unroll
    for (int p = 0; p < PARTS; p++)
#pragma unroll
        for (int j = 0; j < Tile::SUMS; j++) sums[p][j] = 0;
    if (chunks == 0) return;
    tile.wait_until_full(ring);
#pragma unroll
    for (int turn = 0; turn < AHEAD; turn++) fetch(packed[turn], ring.stage, 0, turn);
    unpack_half<FORMAT>(packed[0], lane, words[0]);
    int stage = ring.stage, place = 0,
        done = -1;  // done: a stage whose wgmmas are over as soon as those of the next turn are under way
    for (; chunks > 0; chunks--) {
        const uint64_t tokens = matrix_descriptor(tile.tokens[stage][place]);
        const int this_stage = stage;
#pragma unroll
        for (int turn = 0; turn < TURNS; turn++) {
            const int s = turn / PARTS, p = turn % PARTS;
            hold(sums[p]);
            fence_registers();
            multiply_bf16_registers<Tile::TOKENS>(sums[p], words[turn % 2], tokens + 2 * s * INSTRUCTION);
            multiply_bf16_registers<Tile::TOKENS>(sums[p], words[turn % 2] + 4, tokens + (2 * s + 1) * INSTRUCTION);
            commit_multiplications();
            hold(sums[p]);

            if (turn == TURNS - AHEAD && ++place == Tile::CHUNKS && chunks > 1) {
                ring.advance();
                tile.wait_until_full(ring);
                stage = ring.stage, place = 0;
            }
            if (turn < TURNS - AHEAD || chunks > 1) fetch(packed[turn % AHEAD], stage, place, (turn + AHEAD) % TURNS);
            wait_for_multiplications<1>();
            hold(words[(turn + 1) % 2]);
            if (turn == 0 && done >= 0) {
                tile.release(done);
                done = -1;
            }
            unpack_half<FORMAT>(packed[(turn + 1) % AHEAD], lane, words[(turn + 1) % 2]);
        }
        if (stage != this_stage) done = this_stage;
    }
    wait_for_multiplications<0>();
#pragma unroll
    for (int p = 0; p < PARTS; p++) hold(sums[p]);
    if (done >= 0) tile.release(done);
    tile.release(stage);
    ring.advance();
}

}  // namespace zoo
