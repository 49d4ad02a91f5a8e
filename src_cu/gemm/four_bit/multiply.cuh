// The loop over K of a product with 4-bit weights, by one warpgroup, a block of four chunks (256 of K) at a time. Two halves of the tile's
// tokens may take turns with the block's unpacked words. After each turn its partial sums leave the tensor cores, which keep 13 bits of
// fraction, and are added up in f32; or go on there to the end, where a launch may ask for that and does. What this adds up to the bit:
// zoo/reference/four_bit_gemm.py. Two ways:
//
// Two sets of partial sums: while one is added up, the other's wgmmas run. Words are written anew, two chunks at a time, when the second
// turn's wgmmas have read them. (With one turn there is one set, and what runs meanwhile is the other warpgroup's. It waits for the first half
// of its block before it multiplies the second, which is faster.)
//
//     tensor cores    ## block 0, turn 0 #### block 0, turn 1 #### block 1, turn 0 #### block 1, turn 1 ##
//     the lanes       unpack 0                promote 0            unpack 1, promote 1  promote 0
//
// One set, where two take more registers than there are. Three chunks of the next block are unpacked while the second turn runs, the fourth
// while the next block's first does.
//
//     tensor cores    ## block 0, turn 0 ##                    ## block 0, turn 1 ##           ## block 1, turn 0 ##
//     the lanes       unpack 0's last chunk           promote  unpack 1               promote  unpack 1's last chunk
#pragma once

#include <cstdint>
#include <type_traits>

#include "common/wgmma.cuh"
#include "common/wgmma_registers.cuh"
#include "gemm/four_bit/block.cuh"
#include "gemm/four_bit/stored.cuh"
#include "gemm/four_bit/tile.cuh"
#include "gemm/load/operands.cuh"

namespace zoo {

template <class Tile>
using BlockOf = std::conditional_t<Tile::STORED, BlockOfStoredWords<Tile>, BlockOfWords<Tile>>;

template <int SUMS, int PARTIAL>
__device__ __forceinline__ void add_turn(int turn, float (&sums)[SUMS], float (&partial)[PARTIAL], const auto& promotion) {
    hold(partial);
#pragma unroll
    for (int j = 0; j < PARTIAL; j++) sums[turn * PARTIAL + j] = promotion.added(sums[turn * PARTIAL + j], partial[j]);
}

template <int TURNS, int COLUMNS, class Tile>
__device__ __forceinline__ void multiply_alternating(Tile& tile, BlockOf<Tile>& block, Ring<Tile::STAGES>& ring, int blocks,
                                                     int left, float (&sums)[TURNS * COLUMNS / 2], auto promotion) {
    constexpr int HALF = PROMOTED_CHUNKS / 2, LAST = PROMOTED_CHUNKS - 1;
    const uint32_t table = shared_address(tile.table);
    float first[COLUMNS / 2], second[COLUMNS / 2];  // partial sums of a turn
    auto begin_block = [&] {                        // unpacks it, and starts its first turn
        tile.wait_until_full(ring);
        block.multiply_from(tile, ring.stage);
        block.unpack_from(tile, ring.stage);
        auto next = block.load(0, left);
        Entries entries = look_up(next, table);
        hold(first);
#pragma unroll
        for (int chunk = 0; chunk < PROMOTED_CHUNKS; chunk++) {
            decltype(next) after = {};
            if (chunk < LAST) after = block.load(chunk + 1, left);
            if (TURNS == 2 && chunk == 0) wait_for_multiplications<1>();
            if (chunk == HALF) wait_for_multiplications<0>();  // of one turn: for this block's first half
            hold(block.words[chunk]);
            unpack(next, entries, block.words[chunk]);
            fence_registers();
            block.multiply(0, chunk, first, chunk == 0 && promotion.begins());
            if (TURNS == 1 && chunk == HALF - 1) commit_multiplications();
            if (chunk < LAST) entries = look_up(after, table);
            next = after;
        }
        commit_multiplications();
        hold(first);
        left -= PROMOTED_CHUNKS;
        if (TURNS == 1) promotion.ends();
    };
    if constexpr (TURNS == 1 && !Tile::FITS) {  // of several widths in one tile ptxas would not know that lanes go on together
        do {
            begin_block();
            const int stage = ring.stage;
            ring.advance();
            wait_for_multiplications<0>();
            tile.release(stage);
            add_turn(0, sums, first, promotion);
        } while (--blocks > 0);
        return;
    }
    begin_block();
    for (;;) {
        if constexpr (TURNS == 2) {
            hold(second);
            fence_registers();
#pragma unroll
            for (int chunk = 0; chunk < PROMOTED_CHUNKS; chunk++) {
                block.multiply(1, chunk, second, chunk == 0 && promotion.begins());
                if (chunk % HALF == HALF - 1) commit_multiplications();
            }
            promotion.ends();
            hold(second);
            wait_for_multiplications<2>();
            add_turn(0, sums, first, promotion);
        }
        const int stage = ring.stage;
        ring.advance();
        blocks--;
        if (TURNS == 1 || blocks == 0) {
            wait_for_multiplications<0>();
            tile.release(stage);
            add_turn(TURNS - 1, sums, TURNS == 1 ? first : second, promotion);
            if (blocks == 0) break;
            begin_block();
        } else {
            begin_block();
            wait_for_multiplications<1>();
            tile.release(stage);
            add_turn(1, sums, second, promotion);
        }
    }
}

template <int TURNS, int COLUMNS, class Tile>
__device__ __forceinline__ void multiply_in_turn(Tile& tile, BlockOf<Tile>& block, Ring<Tile::STAGES>& ring, int blocks, int left,
                                                 float (&sums)[TURNS * COLUMNS / 2]) {
    constexpr int LAST = PROMOTED_CHUNKS - 1;
    const uint32_t table = shared_address(tile.table);
    float partial[COLUMNS / 2];
    decltype(block.load(0, 0)) next;
    Entries entries;
    auto unpack_all_but_last = [&](auto&& wait_for_chunk) {
        block.unpack_from(tile, ring.stage);
        next = block.load(0, left);
        entries = look_up(next, table);
#pragma unroll
        for (int chunk = 0; chunk < LAST; chunk++) {
            const auto after = block.load(chunk + 1, left);
            wait_for_chunk(chunk);
            unpack(next, entries, block.words[chunk]);
            next = after;
            entries = look_up(next, table);
        }
    };
    tile.wait_until_full(ring);
    unpack_all_but_last([](int) {});
    for (; blocks > 0; blocks--) {
        const int stage = ring.stage;
        ring.advance();
        left -= PROMOTED_CHUNKS;
        block.multiply_from(tile, stage);
#pragma unroll
        for (int turn = 0; turn < TURNS; turn++) {
            hold(partial);
            fence_registers();
#pragma unroll
            for (int chunk = 0; chunk < PROMOTED_CHUNKS; chunk++) {
                if (turn == 0 && chunk == LAST) {
                    unpack(next, entries, block.words[LAST]);
                    fence_registers();
                }
                block.multiply(turn, chunk, partial, chunk == 0);
                commit_multiplications();
            }
            hold(partial);
            if (turn == TURNS - 1) {
                if (blocks > 1) tile.wait_until_full(ring);
                unpack_all_but_last([&](int chunk) {
                    if (chunk == 0) wait_for_multiplications<3>();
                    if (chunk == 1) wait_for_multiplications<2>();
                    if (chunk == 2) wait_for_multiplications<1>();
                    hold(block.words[chunk]);
                });
            }
            wait_for_multiplications<0>();
            if (turn == TURNS - 1) {
                hold(block.words[LAST]);
                tile.release(stage);
            }
            add_turn(turn, sums, partial, EachBlock());
        }
    }
}

// `left`: how many chunks there are from the first block on, of this warpgroup's rows; others count as zeros.
template <int TURNS, int COLUMNS, class Tile, class Promoting = EachBlock>
__device__ __forceinline__ void multiply_packed(Tile& tile, BlockOf<Tile>& block, Ring<Tile::STAGES>& ring, int blocks, int left,
                                                float (&sums)[TURNS * COLUMNS / 2], Promoting promotion = {}) {
    static_assert(TURNS == 1 || TURNS == 2);
    static_assert(Tile::ALTERNATES || std::is_same_v<Promoting, EachBlock>, "two turns with one set are promoted");
#pragma unroll
    for (int j = 0; j < TURNS * COLUMNS / 2; j++) sums[j] = 0;
    if (blocks == 0) return;
    block.find_places(tile);
    if constexpr (Tile::ALTERNATES)
        multiply_alternating<TURNS, COLUMNS>(tile, block, ring, blocks, left, sums, promotion);
    else
        multiply_in_turn<TURNS, COLUMNS>(tile, block, ring, blocks, left, sums);
}

}  // namespace zoo
