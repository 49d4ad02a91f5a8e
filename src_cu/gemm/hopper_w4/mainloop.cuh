// The loop over K of GEMMs with e4m3 tokens and 4-bit weights, for one warpgroup. The warpgroup dequantizes a K block of weights (256 columns) to
// registers and multiplies it with one or two token parts, one after the other. Partial sums leave the tensor core, which keeps only 13 fraction
// bits, and are added to f32 sums: promotion. zoo/reference/four_bit_gemm.py defines the sums to the bit. Included by packed.cu,
// stored.cu and gated/pipeline.cuh.
//
// multiply_with_two_partials(): promotes every 256 columns. Two token parts have a set of partial sums each: one set is promoted while the wgmmas of
// the other set run. Words of two chunks are overwritten at a time, after part 1's wgmmas have read them.
// With one token part there is one set of partial sums. The other warpgroup's wgmmas run during its promotion. Waiting for the first half of a K
// block before multiplying the second half is faster.
//
//     tensor cores    ## block 0, part 0 #### block 0, part 1 #### block 1, part 0 #### block 1, part 1 ####
//     the lanes       unpack block 0          promote (0, part 0)  unpack block 1,      promote (1, part 0)
//                                                                  promote (0, part 1)
//
// multiply_with_one_partial(): promotes every 256 columns with one set of partial sums, where two sets would need too many registers. Three chunks of
// the next K block are unpacked during part 1, the fourth during part 0 of the next K block.
//
//     tensor cores    ## block 0, part 0 ##                    ## block 0, part 1 ##           ## block 1, part 0 ##
//     the lanes       unpack 0's last chunk           promote  unpack 1               promote  unpack 1's last chunk
//
// Every128Loop: promotes every 128 columns times scale128 of A. One half's words are unpacked while wgmmas read the other half's words. The loop
// waits for wgmmas only to promote their sums or to overwrite their words. Two token parts have a set of partial sums each. One token part has a set
// for each half of a K block: one half is promoted while the next half's wgmmas run.
//
//     tensor cores    ## half 0, part 0 #### half 0, part 1 #### half 1, part 0 #### half 1, part 1 ##
//     the lanes                         unpack 1, promote (0, 0)  promote (0, 1)     unpack 2, promote (1, 0)
#pragma once

#include <cstdint>
#include <type_traits>

#include "common/mbarrier.cuh"
#include "common/shared_memory.cuh"
#include "common/warp.cuh"
#include "common/wgmma.cuh"
#include "gemm/hopper_w4/weights/packed.cuh"

namespace zoo {

template <int SUMS, int PARTIAL>
__device__ __forceinline__ void add_part(int part, float (&sums)[SUMS], float (&partial)[PARTIAL], const auto& promotion) {
    hold(partial);
#pragma unroll
    for (int j = 0; j < PARTIAL; j++) sums[part * PARTIAL + j] = promotion.added(sums[part * PARTIAL + j], partial[j]);
}

template <int TOKEN_PARTS, int COLUMNS, class Tile>
__device__ __forceinline__ void multiply_with_two_partials(Tile& tile, FragmentsOf<Tile>& block, Ring<Tile::STAGES>& ring,
                                                           int blocks, int chunks_left, float (&sums)[TOKEN_PARTS * COLUMNS / 2],
                                                           auto promotion) {
    constexpr int HALF = PROMOTED_CHUNKS / 2, LAST = PROMOTED_CHUNKS - 1;
    const uint32_t table = shared_address(tile.magnitudes);
    float partial_0[COLUMNS / 2], partial_1[COLUMNS / 2];  // of both token parts
    auto begin_block = [&] {                               // unpacks a K block and starts the wgmmas of its first part
        tile.wait_until_full(ring);
        block.set_multiplied_stage(tile, ring.stage);
        block.set_unpacked_stage(tile, ring.stage);
        auto next = block.load(0, chunks_left);
        RowMagnitudes entries = look_up(next, table);
        hold(partial_0);
#pragma unroll
        for (int chunk = 0; chunk < PROMOTED_CHUNKS; chunk++) {
            decltype(next) after = {};
            if (chunk < LAST) after = block.load(chunk + 1, chunks_left);
            if (TOKEN_PARTS == 2 && chunk == 0) wait_for_multiplications<1>();
            // Part 1 of the previous block may still read this half's words. With one part no wgmma does, but the wait makes the loop faster.
            if (chunk == HALF) wait_for_multiplications<0>();
            hold(block.words[chunk]);
            unpack(next, entries, block.words[chunk]);
            fence_registers();
            block.multiply(0, chunk, partial_0, chunk == 0 && promotion.overwrites());
            if (TOKEN_PARTS == 1 && chunk == HALF - 1) commit_multiplications();
            if (chunk < LAST) entries = look_up(after, table);
            next = after;
        }
        commit_multiplications();
        hold(partial_0);
        chunks_left -= PROMOTED_CHUNKS;
        if (TOKEN_PARTS == 1) promotion.end_block();
    };
    if constexpr (TOKEN_PARTS == 1 && !Tile::NARROWS) {  // in tiles that NARROW, ptxas would assume that lanes diverge
        do {
            begin_block();
            const int stage = ring.stage;
            ring.advance();
            wait_for_multiplications<0>();
            tile.release(stage);
            add_part(0, sums, partial_0, promotion);
        } while (--blocks > 0);
        return;
    }
    begin_block();
    for (;;) {
        if constexpr (TOKEN_PARTS == 2) {
            hold(partial_1);
            fence_registers();
#pragma unroll
            for (int chunk = 0; chunk < PROMOTED_CHUNKS; chunk++) {
                block.multiply(1, chunk, partial_1, chunk == 0 && promotion.overwrites());
                if (chunk % HALF == HALF - 1) commit_multiplications();
            }
            promotion.end_block();
            hold(partial_1);
            wait_for_multiplications<2>();
            add_part(0, sums, partial_0, promotion);
        }
        const int stage = ring.stage;
        ring.advance();
        blocks--;
        if (TOKEN_PARTS == 1 || blocks == 0) {
            wait_for_multiplications<0>();
            tile.release(stage);
            add_part(TOKEN_PARTS - 1, sums, TOKEN_PARTS == 1 ? partial_0 : partial_1, promotion);
            if (blocks == 0) break;
            begin_block();
        } else {
            begin_block();
            wait_for_multiplications<1>();  // part 1 is complete since begin_block()
            tile.release(stage);
            add_part(1, sums, partial_1, promotion);
        }
    }
}

template <int TOKEN_PARTS, int COLUMNS, class Tile>
__device__ __forceinline__ void multiply_with_one_partial(Tile& tile, FragmentsOf<Tile>& block, Ring<Tile::STAGES>& ring,
                                                          int blocks, int chunks_left, float (&sums)[TOKEN_PARTS * COLUMNS / 2]) {
    constexpr int LAST = PROMOTED_CHUNKS - 1;
    const uint32_t table = shared_address(tile.magnitudes);
    float partial[COLUMNS / 2];
    decltype(block.load(0, 0)) next;
    RowMagnitudes entries;
    auto unpack_all_but_last = [&](auto&& wait_for_chunk) {
        block.set_unpacked_stage(tile, ring.stage);
        next = block.load(0, chunks_left);
        entries = look_up(next, table);
#pragma unroll
        for (int chunk = 0; chunk < LAST; chunk++) {
            const auto after = block.load(chunk + 1, chunks_left);
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
        chunks_left -= PROMOTED_CHUNKS;
        block.set_multiplied_stage(tile, stage);
#pragma unroll
        for (int part = 0; part < TOKEN_PARTS; part++) {
            hold(partial);
            fence_registers();
#pragma unroll
            for (int chunk = 0; chunk < PROMOTED_CHUNKS; chunk++) {
                if (part == 0 && chunk == LAST) {
                    unpack(next, entries, block.words[LAST]);
                    fence_registers();
                }
                block.multiply(part, chunk, partial, chunk == 0);
                commit_multiplications();
            }
            hold(partial);
            if (part == TOKEN_PARTS - 1) {
                if (blocks > 1) tile.wait_until_full(ring);
                unpack_all_but_last([&](int chunk) {
                    if (chunk == 0) wait_for_multiplications<3>();
                    if (chunk == 1) wait_for_multiplications<2>();
                    if (chunk == 2) wait_for_multiplications<1>();
                    hold(block.words[chunk]);
                });
            }
            wait_for_multiplications<0>();
            if (part == TOKEN_PARTS - 1) {
                hold(block.words[LAST]);
                tile.release(stage);
            }
            add_part(part, sums, partial, PromoteAlways());
        }
    }
}

// Multiplies `blocks` K blocks. This warpgroup's rows have `chunks_left` chunks from the first K block on. Later chunks count as zeros.
template <int TOKEN_PARTS, int COLUMNS, class Tile, class Promoting = PromoteAlways>
__device__ __forceinline__ void multiply_promoting_every_256(Tile& tile, FragmentsOf<Tile>& block, Ring<Tile::STAGES>& ring,
                                                             int blocks, int chunks_left,
                                                             float (&sums)[TOKEN_PARTS * COLUMNS / 2], Promoting promotion = {}) {
    static_assert(TOKEN_PARTS == 1 || TOKEN_PARTS == 2);
    static_assert(Tile::ALTERNATES || std::is_same_v<Promoting, PromoteAlways>,
                  "two parts with one set of partial sums are always promoted");
#pragma unroll
    for (int j = 0; j < TOKEN_PARTS * COLUMNS / 2; j++) sums[j] = 0;
    if (blocks == 0) return;
    block.find_addresses(tile);
    if constexpr (Tile::ALTERNATES)
        multiply_with_two_partials<TOKEN_PARTS, COLUMNS>(tile, block, ring, blocks, chunks_left, sums, promotion);
    else
        multiply_with_one_partial<TOKEN_PARTS, COLUMNS>(tile, block, ring, blocks, chunks_left, sums);
}

template <class Tile, int TOKEN_PARTS, int COLUMNS>
struct Every128Loop {
    static constexpr int PARTIAL = COLUMNS / 2, SUMS = TOKEN_PARTS * PARTIAL, HALF = PROMOTED_CHUNKS / 2;
    static constexpr int SETS = 2;
    static_assert(Tile::SCALED && Tile::STAGES > 2, "the previous, the current and the next K block are in the ring together");

    Tile& tile;
    int chunks_left;     // from the K block that is unpacked on
    int stage;           // of the K block that is multiplied; then of the K block that is unpacked
    int previous_stage;  // of the K block that was multiplied before
    uint32_t own_scale;  // bytes from the first token's scale to the scale of this lane's first token
    FragmentsOf<Tile> block;
    float partial[SETS][PARTIAL];

    __device__ __forceinline__ Every128Loop(Tile& tile, int chunks_left) : tile(tile), chunks_left(chunks_left) {}

    static __device__ __forceinline__ constexpr int set_of(int half, int part) { return TOKEN_PARTS == 1 ? half : part; }

    __device__ __forceinline__ void unpack_half(int half) {
        const uint32_t table = shared_address(tile.magnitudes);
        decltype(block.load(0, 0)) packed[HALF];
        RowMagnitudes entries[HALF];
#pragma unroll
        for (int i = 0; i < HALF; i++) packed[i] = block.load(half * HALF + i, chunks_left);
#pragma unroll
        for (int i = 0; i < HALF; i++) entries[i] = look_up(packed[i], table);
#pragma unroll
        for (int i = 0; i < HALF; i++) {
            hold(block.words[half * HALF + i]);
            unpack(packed[i], entries[i], block.words[half * HALF + i]);
        }
    }

    __device__ __forceinline__ void start(int half, int part) {
        float (&sums)[PARTIAL] = partial[set_of(half, part)];
        hold(sums);
        fence_registers();
#pragma unroll
        for (int chunk = half * HALF; chunk < (half + 1) * HALF; chunk++) block.multiply(part, chunk, sums, chunk == half * HALF);
        commit_multiplications();
        hold(sums);
    }

    // Waits until at most PENDING groups of wgmmas run, and then promotes a token part of a half, whose scales are in stage `of_stage`.
    template <int PENDING>
    __device__ __forceinline__ void promote(int half, int part, int of_stage, float (&sums)[SUMS]) {
        float (&added)[PARTIAL] = partial[set_of(half, part)];
        constexpr int PAIRS = PARTIAL / 4, AHEAD = PAIRS < 4 ? PAIRS : 4;
        float2 scales[PAIRS];  // each has the scales of two neighbouring tokens; pairs of tokens are eight apart
        const float* of = tile.scales.of[of_stage][half] + part * COLUMNS;
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
                float& sum = sums[part * PARTIAL + pair * 4 + i];
                sum = __fmaf_rn(added[pair * 4 + i], i % 2 == 0 ? scales[pair].x : scales[pair].y, sum);
            }
        }
    }

    // Unpacks the first half of the first K block.
    __device__ __forceinline__ void begin(Ring<Tile::STAGES>& ring) {
        block.find_addresses(tile);
        own_scale = accumulator_column(0) * sizeof(float);
        asm volatile("" : "+r"(own_scale));
        tile.wait_until_full(ring);
        stage = ring.stage;
        block.set_unpacked_stage(tile, stage);
        unpack_half(0);
    }

    // Multiplies a K block whose first half is unpacked, and unpacks the first half of the next one. The last group of wgmmas of the previous K
    // block still runs at the beginning. The last group of this K block still runs at the end. ptxas lets a lane read sums while other wgmmas run
    // only in code without branches. So the previous group is complete before new wgmmas begin, and no wait is conditional.
    template <bool IS_FIRST>
    __device__ __forceinline__ void multiply(Ring<Tile::STAGES>& ring, bool is_last, float (&sums)[SUMS]) {
        ring.advance();
        if (!is_last) tile.wait_until_full(ring);
        block.set_multiplied_stage(tile, stage);
        if constexpr (!IS_FIRST) wait_for_multiplications<0>();
        start(0, 0);
        if constexpr (!IS_FIRST) {
            promote<1>(1, TOKEN_PARTS - 1, previous_stage, sums);
            tile.release(previous_stage);
        }
        if constexpr (TOKEN_PARTS == 2) start(0, 1);
        unpack_half(1);
        if constexpr (TOKEN_PARTS == 2) promote<1>(0, 0, stage, sums);
        start(1, 0);
        promote<1>(0, TOKEN_PARTS - 1, stage, sums);
        if constexpr (TOKEN_PARTS == 2) start(1, 1);
        chunks_left -= PROMOTED_CHUNKS;
        previous_stage = stage;
        // Stored weights unpack the last K block twice, because the stage after it may not be filled. Packed weights become zeros there.
        if (!Tile::STORED || !is_last) stage = ring.stage;
        block.set_unpacked_stage(tile, stage);
        unpack_half(0);
        if constexpr (TOKEN_PARTS == 2) promote<1>(1, 0, previous_stage, sums);
    }

    __device__ __forceinline__ void end(float (&sums)[SUMS]) {
        promote<0>(1, TOKEN_PARTS - 1, previous_stage, sums);
        tile.release(previous_stage);
    }
};

// Promotes every 128 columns, times scale128 of the tokens. `begin` prepares the fragments before the first K block.
template <int TOKEN_PARTS, int COLUMNS, class Tile>
__device__ __forceinline__ void multiply_promoting_every_128(Tile& tile, Ring<Tile::STAGES>& ring, int blocks, int chunks_left,
                                                             float (&sums)[TOKEN_PARTS * COLUMNS / 2], const auto& begin) {
#pragma unroll
    for (int j = 0; j < TOKEN_PARTS * COLUMNS / 2; j++) sums[j] = 0;
    if (blocks == 0) return;
    Every128Loop<Tile, TOKEN_PARTS, COLUMNS> loop(tile, chunks_left);
    begin(loop.block);
    loop.begin(ring);
    loop.template multiply<true>(ring, blocks == 1, sums);
    // ptxas does not see that these values are uniform after the K block before the loop.
    loop.stage = same_in_all_lanes(loop.stage);
    loop.previous_stage = same_in_all_lanes(loop.previous_stage);
    ring.stage = same_in_all_lanes(ring.stage);
    ring.parity = same_in_all_lanes(ring.parity);
#pragma unroll 1
    for (; blocks > 1; blocks--) loop.template multiply<false>(ring, blocks == 2, sums);
    loop.end(sums);
}

// Calls multiply<TOKEN_PARTS, COLUMNS>(sums) for all tokens, or in a tile that NARROWS for about as many as `rows`; the other sums become zeros. Each
// width is a loop over K of its own, and no two widths use wgmmas of the same shape: ptxas would merge such loops and serialize their wgmmas.
// Loops with scale128 and loops of stored weights are long, so they have two widths, and the others three.
template <class Tile>
__device__ __forceinline__ void multiply_needed_tokens(int rows, float (&sums)[Tile::SUMS], const auto& multiply) {
    auto at_width = [&]<int TOKEN_PARTS, int COLUMNS>() {
        constexpr int COUNT = TOKEN_PARTS * COLUMNS / 2;
        float own[COUNT], zero;
        multiply.template operator()<TOKEN_PARTS, COLUMNS>(own);
        asm volatile("mov.f32 %0, 0f00000000;" : "=f"(zero));  // asm keeps the zeros out of registers during the loop
#pragma unroll
        for (int j = 0; j < Tile::SUMS; j++) sums[j] = j < COUNT ? own[j] : zero;
    };
    if constexpr (Tile::NARROWS) {
        constexpr int COLUMNS = Tile::TOKENS / Tile::TOKEN_PARTS;
        static_assert(Tile::TOKENS > 72 && COLUMNS != 72 && COLUMNS != 32);
        rows = same_in_all_lanes(rows);
        if (!Tile::SCALED && !Tile::STORED && rows <= 32) return at_width.template operator()<1, 32>();
        if (rows <= 72) return at_width.template operator()<1, 72>();
    }
    at_width.template operator()<Tile::TOKEN_PARTS, Tile::TOKENS / Tile::TOKEN_PARTS>();
}

// Multiplies one tile along K for a warpgroup. With SPLITS > 1, a CTA multiplies its share of K.
template <class Tile, int SPLITS>
struct Fp8Mainloop {
    int chunks;  // chunks along K; 0 where this warpgroup has no weight rows

    __device__ __forceinline__ Fp8Mainloop(const auto& operands, const Work& work) {
        const bool exists = work.weight / CHUNK_ROWS + warpgroup_index() < operands.b.weight_parts;
        int end = operands.b.chunks;
        if constexpr (SPLITS > 1) end = min(end, work.end_block * PROMOTED_CHUNKS);  // the end of this CTA's share
        chunks = exists ? end - work.first_block * PROMOTED_CHUNKS : 0;
    }

    __device__ __forceinline__ void multiply(Tile& tile, Ring<Tile::STAGES>& ring, const auto& operands, const Work& work,
                                             float (&sums)[1][Tile::SUMS]) const {
        const int blocks = work.end_block - work.first_block;
        multiply_needed_tokens<Tile>(work.end_token - work.token, sums[0], [&]<int TOKEN_PARTS, int COLUMNS>(auto& some_sums) {
            if constexpr (Tile::SCALED) {
                multiply_promoting_every_128<TOKEN_PARTS, COLUMNS>(tile, ring, blocks, chunks, some_sums, [&](auto& block) {
                    if constexpr (Tile::STORED) block.begin(operands.stored_scales, work);
                });
            } else {
                FragmentsOf<Tile> block;
                if constexpr (Tile::STORED) block.begin(operands.stored_scales, work);
                multiply_promoting_every_256<TOKEN_PARTS, COLUMNS>(tile, block, ring, blocks, chunks, some_sums,
                                                                   operands.promotion);
            }
        });
    }
};

}  // namespace zoo
