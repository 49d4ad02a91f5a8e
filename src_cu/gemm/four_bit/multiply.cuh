// The loop over K of a product with 4-bit weights, by one warpgroup: while the tensor cores multiply a chunk (two wgmmas of 32 of K),
// the next is unpacked into the other eight words, and the one after it is on its way from shared memory.
//
//     tensor cores    ####0#### ####1#### ####2#### ####3####           ####4####
//     the lanes       unpack 1  unpack 2  unpack 3  unpack 4  promote   unpack 5
//
// After every block of four chunks, 256 of K, partial sums leave the tensor cores, which keep 13 bits of fraction, and are added up in
// f32. What this adds up to the bit: zoo/reference/four_bit_gemm.py.
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
    constexpr int UNIT = 16;  // of a descriptor's address
    const int thread = threadIdx.x % WARPGROUP;
    const uint32_t weights = shared_address(tile.weights[0][warpgroup_index()]);
    const uint32_t codes_at = weights + thread * 16;
    const uint32_t scales_at = weights + CODE_BYTES + (Tile::FORMAT == Weights::nvfp4 ? thread * 2 : thread / 2 * 2);
    const uint32_t table = shared_address(tile.table);

    auto fetch = [&](bool exists, int stage, int place) {  // the chunk at this place of a stage
        PackedWeights packed = {};
        if (exists) {
            const uint32_t at = stage * sizeof(tile.weights[0]) + place * Tile::CHUNK_BYTES;
            packed = load_packed(codes_at + at, scales_at + at);
        }
        return packed;
    };
    float partial[Tile::SUMS];
    uint32_t words[2][8];
#pragma unroll
    for (int j = 0; j < Tile::SUMS; j++) sums[j] = 0;
    if (blocks == 0) return;
    tile.wait_until_full(ring);
    PackedWeights next = fetch(left > 0, ring.stage, 0);
    unpack(next, look_up(next, table), words[0]);
    next = fetch(left > 1, ring.stage, 1);
    for (; blocks > 0; blocks--) {
        const int stage = ring.stage;
        ring.advance();
#pragma unroll
        for (int i = 0; i < PROMOTED_CHUNKS; i++) {
            const uint64_t tokens = matrix_descriptor(tile.tokens[stage][0]) + i / 2 * (Tile::TOKENS * 128 / UNIT) + i % 2 * 4;
            hold(partial);
            fence_registers();
            multiply_registers<Tile::TOKENS>(partial, words[i % 2], tokens, i > 0);
            multiply_registers<Tile::TOKENS>(partial, words[i % 2] + 4, tokens + 2, true);
            commit_multiplications();
            hold(partial);

            const Entries entries = look_up(next, table);
            constexpr int AHEAD = 2, LEFT = PROMOTED_CHUNKS - AHEAD;
            if (i == LEFT && blocks > 1) tile.wait_until_full(ring);
            const PackedWeights after = fetch(left > i + AHEAD, i < LEFT ? stage : ring.stage, (i + AHEAD) % PROMOTED_CHUNKS);
            wait_for_multiplications<1>();
            hold(words[(i + 1) % 2]);
            unpack(next, entries, words[(i + 1) % 2]);
            next = after;
        }
        left -= PROMOTED_CHUNKS;
        wait_for_multiplications<0>();
        hold(partial);
        tile.release(stage);
#pragma unroll
        for (int j = 0; j < Tile::SUMS; j++) sums[j] = __fadd_rn(sums[j], partial[j]);
    }
}

}  // namespace zoo
