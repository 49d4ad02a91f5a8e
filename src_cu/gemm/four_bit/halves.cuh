// The loop over K of a product with 4-bit weights, by one warpgroup, half a block (128 of K) at a time: A has a scale for 1 x 128, and
// each half's partial sums are multiplied by it as they are added up. One half's words are unpacked while the wgmmas of the half before read
// theirs, and none are waited for but to be promoted or to have their words written anew.
//
// Two turns have a set of partial sums each. A turn's sums are promoted while the other turn's wgmmas run:
//
//     tensor cores    ## half 0, turn 0 #### half 0, turn 1 #### half 1, turn 0 #### half 1, turn 1 ##
//     the lanes                         unpack 1, promote (0, 0)  promote (0, 1)     unpack 2, promote (1, 0)
//
// With one turn the halves of a block have a set each: one half is promoted while the next one's wgmmas run. What this adds up to the bit:
// zoo/reference/four_bit_gemm.py.
#pragma once

#include <cstdint>

#include "common/shared_memory.cuh"
#include "gemm/four_bit/multiply.cuh"

namespace zoo {

template <class Tile, int TURNS, int COLUMNS>
struct LoopOverHalves {
    static constexpr int PARTIAL = COLUMNS / 2, SUMS = TURNS * PARTIAL, HALF = PROMOTED_CHUNKS / 2;
    static constexpr int SETS = 2;
    static_assert(Tile::SCALED && Tile::STAGES > 2, "a block, the one before it and the next one are there at once");

    Tile& tile;
    bool by_threads;     // tokens are gathered, asked once: of each block it is 3 to 10 instructions
    int left;            // chunks, from the block that is unpacked on
    int stage, before;   // of the block that is multiplied, and of the one before it
    uint32_t own_scale;  // how far behind the first token's scale that of this lane's first one lies
    BlockOf<Tile> block;
    float partial[SETS][PARTIAL];

    __device__ __forceinline__ LoopOverHalves(Tile& tile, int left) : tile(tile), by_threads(tile.are_gathered()), left(left) {}

    static __device__ __forceinline__ constexpr int set_of(int half, int turn) { return TURNS == 1 ? half : turn; }

    __device__ __forceinline__ void unpack_half(int half) {
        const uint32_t table = shared_address(tile.table);
        decltype(block.load(0, 0)) packed[HALF];
        Entries entries[HALF];
#pragma unroll
        for (int i = 0; i < HALF; i++) packed[i] = block.load(half * HALF + i, left);
#pragma unroll
        for (int i = 0; i < HALF; i++) entries[i] = look_up(packed[i], table);
#pragma unroll
        for (int i = 0; i < HALF; i++) {
            hold(block.words[half * HALF + i]);
            unpack(packed[i], entries[i], block.words[half * HALF + i]);
        }
    }

    __device__ __forceinline__ void start(int half, int turn) {
        float (&sums)[PARTIAL] = partial[set_of(half, turn)];
        hold(sums);
        fence_registers();
#pragma unroll
        for (int chunk = half * HALF; chunk < (half + 1) * HALF; chunk++) block.multiply(turn, chunk, sums, chunk == half * HALF);
        commit_multiplications();
        hold(sums);
    }

    // When all but PENDING groups are over: a turn of one half, whose scales are in that stage.
    template <int PENDING>
    __device__ __forceinline__ void promote(int half, int turn, int of_stage, float (&sums)[SUMS]) {
        float (&added)[PARTIAL] = partial[set_of(half, turn)];
        constexpr int PAIRS = PARTIAL / 4, AHEAD = PAIRS < 4 ? PAIRS : 4;
        float2 scales[PAIRS];  // of two tokens each, eight apart
        const float* of = tile.scales.of[of_stage][half] + turn * COLUMNS;
        const uint32_t at = shared_address(of) + own_scale;
#pragma unroll
        for (int i = 0; i < AHEAD; i++) scales[i] = load_two_shared(at + i * 8 * sizeof(float));
        wait_for_multiplications<PENDING>();
        hold(added);
#pragma unroll
        for (int pair = 0; pair < PAIRS; pair++) {
            if (pair + AHEAD < PAIRS) scales[pair + AHEAD] = load_two_shared(at + (pair + AHEAD) * 8 * sizeof(float));
#pragma unroll
            for (int i = 0; i < 4; i++) {
                float& sum = sums[turn * PARTIAL + pair * 4 + i];
                sum = __fmaf_rn(added[pair * 4 + i], i % 2 == 0 ? scales[pair].x : scales[pair].y, sum);
            }
        }
    }

    // Words of the first block's first half.
    __device__ __forceinline__ void begin(Ring<Tile::STAGES>& ring) {
        block.find_places(tile);
        own_scale = accumulator_column(0) * sizeof(float);
        asm volatile("" : "+r"(own_scale));
        tile.wait_until_full(ring, by_threads);
        stage = ring.stage;
        block.unpack_from(tile, stage);
        unpack_half(0);
    }

    // One block, whose first half is unpacked; then the next one's is. When it begins, the block before, if there is one, has its last group
    // running; when it ends, so has this one. ptxas lets sums be read while other wgmmas run only where both were asked for in straight
    // code: so that group is over before others begin, and nothing is waited for in between that might not be there.
    template <bool IS_FIRST>
    __device__ __forceinline__ void multiply(Ring<Tile::STAGES>& ring, bool is_last, float (&sums)[SUMS]) {
        ring.advance();
        if (!is_last) tile.wait_until_full(ring, by_threads);
        block.multiply_from(tile, stage);
        if constexpr (!IS_FIRST) wait_for_multiplications<0>();
        start(0, 0);
        if constexpr (!IS_FIRST) {
            promote<1>(1, TURNS - 1, before, sums);
            tile.release(before);
        }
        if constexpr (TURNS == 2) start(0, 1);
        unpack_half(1);
        if constexpr (TURNS == 2) promote<1>(0, 0, stage, sums);
        start(1, 0);
        promote<1>(0, TURNS - 1, stage, sums);
        if constexpr (TURNS == 2) start(1, 1);
        left -= PROMOTED_CHUNKS;
        before = stage;
        // Stored words, which are not told what exists, unpack the last block twice: the next one may not be there.
        if (!Tile::STORED || !is_last) stage = ring.stage;
        block.unpack_from(tile, stage);
        unpack_half(0);
        if constexpr (TURNS == 2) promote<1>(1, 0, before, sums);
    }

    __device__ __forceinline__ void end(float (&sums)[SUMS]) {
        promote<0>(1, TURNS - 1, before, sums);
        tile.release(before);
    }
};

// As multiply_packed(). `begin`: of a block's words, before the first.
template <int TURNS, int COLUMNS, class Tile>
__device__ __forceinline__ void multiply_by_halves(Tile& tile, Ring<Tile::STAGES>& ring, int blocks, int left,
                                                   float (&sums)[TURNS * COLUMNS / 2], const auto& begin) {
#pragma unroll
    for (int j = 0; j < TURNS * COLUMNS / 2; j++) sums[j] = 0;
    if (blocks == 0) return;
    LoopOverHalves<Tile, TURNS, COLUMNS> loop(tile, left);
    begin(loop.block);
    loop.begin(ring);
    loop.template multiply<true>(ring, blocks == 1, sums);
    // Behind a block that is not of the loop ptxas does not know what is the same in all lanes.
    loop.stage = same_in_all_lanes(loop.stage);
    loop.before = same_in_all_lanes(loop.before);
    ring.stage = same_in_all_lanes(ring.stage);
    ring.parity = same_in_all_lanes(ring.parity);
#pragma unroll 1
    for (; blocks > 1; blocks--) loop.template multiply<false>(ring, blocks == 2, sums);
    loop.end(sums);
}

}  // namespace zoo
