// The loop over K of a product with 4-bit weights, by one warpgroup, a block of four chunks (256 of K) at a time. The tile's tokens may take
// turns with the block's unpacked words: wider tiles then unpack less for each product, and have partial sums of one turn only.
//
//     tensor cores    ##### block 0, turn 0 #####         ##### block 0, turn 1 #####         ##### block 1, turn 0 #####
//     the lanes       unpack its last chunk      promote  unpack the others of 1     promote
//
// A chunk's words are written anew when the last turn's wgmmas have read them, those of the last chunk while the next block's first run.
// Meanwhile the tensor cores have what the other warpgroup asked for. After each turn its partial sums leave the tensor cores, which keep 13
// bits of fraction, and are added up in f32. What this adds up to the bit: zoo/reference/four_bit_gemm.py.
#pragma once

#include <cstdint>

#include "common/wgmma.cuh"
#include "common/wgmma_registers.cuh"
#include "gemm/four_bit/tile.cuh"
#include "gemm/operands.cuh"

namespace zoo {

// `left`: how many chunks there are from the first block on, of this warpgroup's rows; others count as zeros.
template <class Tile>
__device__ __forceinline__ void multiply_packed(Tile& tile, Ring<Tile::STAGES>& ring, int blocks, int left,
                                                float (&sums)[Tile::SUMS]) {
    constexpr int TURNS = Tile::TURNS, COLUMNS = Tile::TOKENS / TURNS, PARTIAL = COLUMNS / 2, LAST = PROMOTED_CHUNKS - 1;
    constexpr int UNIT = 16;  // of a descriptor's address
    const int thread = thread_index_anew() % WARPGROUP;
    const uint32_t weights = shared_address(tile.weights[0][warpgroup_index()]);
    const uint32_t table = shared_address(tile.table);
    uint32_t codes, scales;  // of this lane, in the stage that is read
    auto read_stage = [&](int stage) {
        const uint32_t at = weights + stage * sizeof(tile.weights[0]);
        codes = at + thread * 16;
        scales = at + CODE_BYTES + (Tile::FORMAT == Weights::nvfp4 ? thread * 2 : thread / 2 * 2);
        asm volatile("" : "+r"(codes), "+r"(scales));  // or they are computed anew for each chunk
    };
    auto fetch = [&](int chunk) {
        return load_packed(codes + chunk * Tile::CHUNK_BYTES, scales + chunk * Tile::CHUNK_BYTES, left > chunk);
    };

    float partial[PARTIAL];
    uint32_t words[PROMOTED_CHUNKS][8];
#pragma unroll
    for (int j = 0; j < Tile::SUMS; j++) sums[j] = 0;
    if (blocks == 0) return;
    tile.wait_until_full(ring);
    read_stage(ring.stage);
    PackedWeights next = fetch(0);
    Entries entries = look_up(next, table);
#pragma unroll
    for (int chunk = 0; chunk < LAST; chunk++) {
        const PackedWeights after = fetch(chunk + 1);
        unpack(next, entries, words[chunk]);
        next = after;
        entries = look_up(next, table);
    }
    for (; blocks > 0; blocks--) {
        const int stage = ring.stage;
        ring.advance();
        left -= PROMOTED_CHUNKS;
        const uint32_t first_tokens = uint32_t(matrix_descriptor(tile.tokens[stage][0]));
#pragma unroll
        for (int turn = 0; turn < TURNS; turn++) {
            auto multiply = [&](int chunk) {
                const uint32_t at = first_tokens + chunk / 2 * (Tile::TOKENS * 128 / UNIT) + turn * (COLUMNS * 128 / UNIT);
#pragma unroll
                for (int s = 0; s < 2; s++) {
                    const uint64_t tokens = matrix_descriptor(nullptr) | uint32_t(at + chunk % 2 * 4 + s * 2);
                    multiply_registers<COLUMNS>(partial, words[chunk] + 4 * s, tokens, chunk + s > 0);
                }
                commit_multiplications();
            };
            hold(partial);
            fence_registers();
#pragma unroll
            for (int chunk = 0; chunk < LAST; chunk++) multiply(chunk);
            if (turn == 0) {
                unpack(next, entries, words[LAST]);
                fence_registers();
            }
            multiply(LAST);
            hold(partial);

            if (turn == TURNS - 1) {
                if (blocks > 1) tile.wait_until_full(ring);
                read_stage(ring.stage);
                next = fetch(0);
                entries = look_up(next, table);
#pragma unroll
                for (int chunk = 0; chunk < LAST; chunk++) {
                    const PackedWeights after = fetch(chunk + 1);
                    if (chunk == 0) wait_for_multiplications<3>();
                    if (chunk == 1) wait_for_multiplications<2>();
                    if (chunk == 2) wait_for_multiplications<1>();
                    hold(words[chunk]);
                    unpack(next, entries, words[chunk]);
                    next = after;
                    entries = look_up(next, table);
                }
            }
            wait_for_multiplications<0>();
            hold(partial);
            if (turn == TURNS - 1) {
                hold(words[LAST]);
                tile.release(stage);
            }
#pragma unroll
            for (int j = 0; j < PARTIAL; j++) sums[turn * PARTIAL + j] = __fadd_rn(sums[turn * PARTIAL + j], partial[j]);
        }
    }
}

}  // namespace zoo
