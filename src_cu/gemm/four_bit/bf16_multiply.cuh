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
#include <type_traits>

#include "common/wgmma.cuh"
#include "common/wgmma_registers_bf16.cuh"
#include "gemm/four_bit/bf16_stored.cuh"
#include "gemm/four_bit/bf16_tile.cuh"

namespace zoo {

// `exist`: how many parts of this warpgroup's lie within the matrix; others count as zeros. `stored`: of weights that are not packed.
template <class Tile>
__device__ __forceinline__ void multiply_bf16(Tile& tile, Ring<Tile::STAGES>& ring, int chunks, int exist,
                                              float (&sums)[Tile::PARTS][Tile::SUMS], StoredHalves<Tile>* stored = nullptr) {
    constexpr Weights FORMAT = Tile::FORMAT;
    constexpr int PARTS = Tile::PARTS, TURNS = 2 * PARTS, AHEAD = 2;
    constexpr int UNIT = 16, INSTRUCTION = 32 / UNIT;  // of a descriptor's address; bytes of K
    const int four = threadIdx.x % WARPGROUP / 4;
    const PairOfLane lane(threadIdx.x % 4);
    const uint32_t weights = shared_address(tile.weights[0][warpgroup_index()]);
    const uint32_t codes_at = weights + four * 64;
    const uint32_t scales_at = weights + CODE_BYTES + four * (FORMAT == Weights::nvfp4 ? 8 : 4);

    PackedHalf packed[AHEAD] = {};
    auto fetch = [&](PackedHalf& half, uint32_t at, int turn) {  // of the chunk that lies so far behind the first
        const int s = turn / PARTS, p = turn % PARTS;
        if constexpr (Tile::STORED) return stored->load(half, at, s);
        at += p * Tile::WARPGROUPS * sizeof(tile.weights[0][0]);
        if (p < exist) load_half<FORMAT>(half, codes_at + at + s * 32, scales_at + at + s * (FORMAT == Weights::nvfp4 ? 4 : 2));
    };
    uint32_t words[2][8];
#pragma unroll
    for (int p = 0; p < PARTS; p++)
#pragma unroll
        for (int j = 0; j < Tile::SUMS; j++) sums[p][j] = 0;
    if (chunks == 0) return;
    tile.wait_until_full(ring);
    uint32_t at = ring.stage * sizeof(tile.weights[0]);
#pragma unroll
    for (int turn = 0; turn < AHEAD; turn++) fetch(packed[turn], at, turn);
    auto unpack = [&](const PackedHalf& half, int chunk, int turn, uint32_t (&to)[8]) {
        if constexpr (!Tile::STORED) return unpack_half<FORMAT>(half, lane, to);
        if (chunk == 0 && turn == 0) stored->begin_stage();
        stored->unpack(half, chunk, turn, to);
    };
    unpack(packed[0], 0, 0, words[0]);
    for (int stage, before = -1;; before = stage) {
        stage = ring.stage;
        const uint64_t first_tokens = matrix_descriptor(tile.tokens[stage][0]);
#pragma unroll
        for (int place = 0; place < Tile::CHUNKS; place++) {
            auto tokens = [&](int instruction) {  // addresses end within the lower word
                return first_tokens >> 32 << 32 |
                       uint32_t(uint32_t(first_tokens) + place * (Tile::TOKENS * 128 / UNIT) + instruction * INSTRUCTION);
            };
#pragma unroll
            for (int turn = 0; turn < TURNS; turn++) {
                const int s = turn / PARTS, p = turn % PARTS;
                hold(sums[p]);
                fence_registers();
                multiply_bf16_registers<Tile::TOKENS>(sums[p], words[turn % 2], tokens(2 * s));
                multiply_bf16_registers<Tile::TOKENS>(sums[p], words[turn % 2] + 4, tokens(2 * s + 1));
                commit_multiplications();
                hold(sums[p]);

                if (turn < TURNS - AHEAD) {
                    fetch(packed[turn % AHEAD], at + place * Tile::NEXT_CHUNK, turn + AHEAD);
                } else if (chunks > 1) {
                    if (turn == TURNS - AHEAD && place == Tile::CHUNKS - 1) {
                        ring.advance();
                        tile.wait_until_full(ring);
                        at = ring.stage * sizeof(tile.weights[0]);
                    }
                    fetch(packed[turn % AHEAD], at + (place + 1) % Tile::CHUNKS * Tile::NEXT_CHUNK, turn + AHEAD - TURNS);
                }
                wait_for_multiplications<1>();
                hold(words[(turn + 1) % 2]);
                if (turn == 0 && place == 0 && before >= 0) tile.release(before);  // its wgmmas are over
                unpack(packed[(turn + 1) % AHEAD], (place + (turn + 1) / TURNS) % Tile::CHUNKS, (turn + 1) % TURNS,
                       words[(turn + 1) % 2]);
            }
            if (--chunks == 0) break;
        }
        if (chunks == 0) break;
    }
    wait_for_multiplications<0>();
#pragma unroll
    for (int p = 0; p < PARTS; p++) hold(sums[p]);
    tile.release(ring.stage);
    ring.advance();
}

}  // namespace zoo
