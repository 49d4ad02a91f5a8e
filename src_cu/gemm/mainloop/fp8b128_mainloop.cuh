// The loop over K of an fp8b128 GEMM. Some warps load; the others multiply a stage, give it back, and promote:
//
//     load        |0 1 2 3| wait for 0 to be given back, 4, wait for 1, 5 ...
//     warpgroup 0 |   0 ####pp 1 ####pp 2 ####pp          # tensor cores: four wgmmas, 128 along K
//     warpgroup 1 |       0 ####pp 1 ####pp 2 ####pp      p promotion: partial sums * scales are added in f32
//
// The tensor cores keep 13 bits of fraction, so the sum of one block of K must leave them; a block's two scales go on it
// then. Promotion costs one fused multiply-add for 128 of the tensor cores', a quarter of their time. While one
// warpgroup promotes, the others' wgmmas run; nothing but the stages ties them together. Seen: 192 x 128 by three
// warpgroups takes 807 cycles a block, 768 of them its tensor cores' time, 128 x 192 by two 870.
//
// What is computed, to the bit, for every element: scale = a_scale * b_scale, rounded; sum = fma(partial, scale, sum), block
// after block; partial is four wgmmas, each adding 32 products as docs/emulator_arithmetic.md says.
#pragma once

#include <cstdint>

#include "common/mbarrier.cuh"
#include "common/wgmma.cuh"
#include "gemm/pipeline/fp8b128_tile.cuh"
#include "gemm/load/operands.cuh"

namespace zoo {

// By one thread, for all of its CTA's work, or by its warp where the order takes one; then the others only walk along. The weights of
// the first blocks, `weights_ahead` of them, are on their way.
template <class Tile, class Order, class Operands>
__device__ __forceinline__ void load_elements(Tile& tile, Order order, const Operands& operands, int lane, int weights_ahead) {
    Ring<Tile::STAGES> ring;
    for (Work work; order.next(work);) {
        if (OfWarps<Order> && lane > 0) continue;
        for (int block = work.first_block; block < work.end_block; block++, ring.advance()) {
            tile.wait_until_empty(ring);
            if (weights_ahead > 0)
                weights_ahead--;
            else
                operands.load_weights(tile, ring.stage, work, block);
            operands.load_tokens(tile, ring.stage, work, block);
        }
    }
}

// What may be fetched before the kernel ahead has ended.
struct Early {
    bool tokens = false;  // to the L2 cache, where that kernel's stores go as well: always allowed, worth it where tokens are few
    bool weights = false;  // into the ring of stages: they are constants
};

// By one thread, once the ring is initialised: the first weights.
template <class Tile, class Order, class Operands>
__device__ __forceinline__ void load_weights_ahead(Tile& tile, Order order, const Operands& operands) {
    int stage = 0;
    for (Work work; stage < Tile::WEIGHTS_AHEAD && order.next(work);)
        for (int block = work.first_block; block < work.end_block && stage < Tile::WEIGHTS_AHEAD; block++, stage++)
            operands.load_weights(tile, stage, work, block);
}

// By the loading warps: CTAs that share tokens share the blocks of K.
template <class Tile, class Order, class Operands>
__device__ __forceinline__ void prefetch_tokens(const Order& order, const Operands& operands, const Work& work) {
    const int thread = threadIdx.x - Tile::MATH_THREADS;
    if (thread < 0) return;
    for (int block = work.first_block + work.weight / Tile::WEIGHTS; block < work.end_block; block += order.columns)
        operands.prefetch_tokens(work, block, thread, Tile::THREADS - Tile::MATH_THREADS);
}

// By the scale warps, where the copy engine can bring a block's scales of A at once, from `scales` on: the first warp asks for
// them, the last one brings those of B. Instructions are what it saves: they are issued between those of promotion.
template <bool EITHER, class Tile, class Operands>
__device__ __forceinline__ void copy_scales(Tile& tile, Ring<Tile::STAGES>& ring, const Operands& operands, const Work& work,
                                            const uint8_t* scales, int thread) {
    constexpr int AHEAD = RowScales<EITHER>::AHEAD;
    static_assert(Tile::SCALE_THREADS >= 64 && Tile::WEIGHT_SCALES <= 32);
    const int lane = thread % 32;
    const bool is_weight = thread >= Tile::SCALE_THREADS - 32 && lane < Tile::WEIGHT_SCALES;
    RowScales<EITHER> weight;
    if (is_weight) operands.begin_weight(weight, work, lane);
    weight.read(work.end_block - work.first_block);
    for (int first = work.first_block; first < work.end_block; first += AHEAD) {
        weight.read(work.end_block - first - AHEAD);
#pragma unroll
        for (int ahead = 0; ahead < AHEAD; ahead++) {
            if (first + ahead == work.end_block) break;
            Barrier* full = &tile.full[ring.stage];
            tile.wait_until_empty(ring);
            if (is_weight) tile.weight_scales[ring.stage][lane] = weight.of(ahead);
            __syncwarp();
            if (thread == 0) {
                arrive_expecting_bytes(full, Tile::TOKENS * 4);
                load_bytes(tile.token_scales[ring.stage], scales, Tile::TOKENS * 4, full);
                scales += operands.a_scales.block_stride;
            } else if (lane == 0) {
                arrive(full);
            }
            ring.advance();
        }
    }
}

template <bool EITHER, class Tile, class Order, class Operands>
__device__ __forceinline__ void load_scales(Tile& tile, Order order, const Operands& operands, int thread) {
    constexpr int AHEAD = EITHER ? Tile::BYTES_AHEAD : RowScales<EITHER>::AHEAD, THREADS = Tile::SCALE_THREADS;
    constexpr int ROUNDS = (Tile::TOKENS + Tile::WEIGHT_SCALES + THREADS - 1) / THREADS;
    // Of the rows that threads take in turn, the first are tokens, then come weights, then nothing.
    auto is_token = [&](int round) { return (round + 1) * THREADS <= Tile::TOKENS || round * THREADS + thread < Tile::TOKENS; };
    auto is_weight = [&](int round) {
        const int row = round * THREADS + thread;
        return !is_token(round) && row < Tile::TOKENS + Tile::WEIGHT_SCALES;
    };
    Ring<Tile::STAGES> ring;
    for (Work work; order.next(work);) {
        if (const uint8_t* scales = operands.token_scales_to_copy(work)) {
            copy_scales<EITHER>(tile, ring, operands, work, scales, thread);
            continue;
        }
        RowScales<EITHER, AHEAD> rows[ROUNDS];
#pragma unroll
        for (int round = 0; round < ROUNDS; round++) {
            const int row = round * THREADS + thread;
            if (is_token(round)) operands.begin_token(rows[round], work, row);
            if (is_weight(round)) operands.begin_weight(rows[round], work, row - Tile::TOKENS);
            rows[round].read(work.end_block - work.first_block);
        }
        for (int first = work.first_block; first < work.end_block; first += AHEAD) {
#pragma unroll
            for (int round = 0; round < ROUNDS; round++) rows[round].read(work.end_block - first - AHEAD);
#pragma unroll
            for (int ahead = 0; ahead < AHEAD; ahead++) {
                if (first + ahead == work.end_block) break;
                tile.wait_until_empty(ring);
#pragma unroll
                for (int round = 0; round < ROUNDS; round++) {
                    const int row = round * THREADS + thread;
                    if (is_token(round)) tile.token_scales[ring.stage][row] = rows[round].of(ahead);
                    if (is_weight(round)) tile.weight_scales[ring.stage][row - Tile::TOKENS] = rows[round].of(ahead);
                }
                __syncwarp();
                if (thread % 32 == 0) arrive(&tile.full[ring.stage]);
                ring.advance();
            }
        }
    }
}

// By the scale warps: each thread brings the scales of some rows. They wait for memory, so they are not those that copy. The loop for
// bytes is one of its own: that for f32 issues nothing for them.
template <class Tile, class Order, class Operands>
__device__ __forceinline__ void load_scales(Tile& tile, Order order, const Operands& operands, int thread) {
    if (has_bytes(operands))
        load_scales<true>(tile, order, operands, thread);
    else
        load_scales<false>(tile, order, operands, thread);
}

// The same where tokens are columns: a thread has some tokens and all scales of B, and brings their products.
template <bool EITHER, class Tile, class Order, class Operands>
__device__ __forceinline__ void load_factors(Tile& tile, Order order, const Operands& operands, int thread) {
    constexpr int AHEAD = RowScales<EITHER>::AHEAD, THREADS = Tile::SCALE_THREADS, ENTRIES = Tile::WEIGHT_SCALES;
    constexpr int ROUNDS = (Tile::TOKENS + THREADS - 1) / THREADS;
    auto is_token = [&](int round) { return (round + 1) * THREADS <= Tile::TOKENS || round * THREADS + thread < Tile::TOKENS; };
    Ring<Tile::STAGES> ring;
    for (Work work; order.next(work);) {
        RowScales<EITHER> tokens[ROUNDS], weights[ENTRIES];
        auto read = [&](int left) {
#pragma unroll
            for (int round = 0; round < ROUNDS; round++) tokens[round].read(left);
#pragma unroll
            for (int entry = 0; entry < ENTRIES; entry++) weights[entry].read(left);
        };
#pragma unroll
        for (int round = 0; round < ROUNDS; round++)
            if (is_token(round)) operands.begin_token(tokens[round], work, round * THREADS + thread);
#pragma unroll
        for (int entry = 0; entry < ENTRIES; entry++) operands.begin_weight(weights[entry], work, entry);
        read(work.end_block - work.first_block);
        for (int first = work.first_block; first < work.end_block; first += AHEAD) {
            read(work.end_block - first - AHEAD);
#pragma unroll
            for (int ahead = 0; ahead < AHEAD; ahead++) {
                if (first + ahead == work.end_block) break;
                tile.wait_until_empty(ring);
#pragma unroll
                for (int round = 0; round < ROUNDS; round++)
#pragma unroll
                    for (int entry = 0; entry < ENTRIES; entry++)
                        if (is_token(round))
                            tile.factor(ring.stage, entry, round * THREADS + thread) =
                                tokens[round].of(ahead) * weights[entry].of(ahead);
                __syncwarp();
                if (thread % 32 == 0) arrive(&tile.full[ring.stage]);
                ring.advance();
            }
        }
    }
}

// By the loading warps: the first copies elements, the others bring scales.
template <class Tile, class Order, class Operands>
__device__ __forceinline__ void load(Tile& tile, Order order, const Operands& operands, int weights_ahead = 0) {
    const int thread = threadIdx.x - Tile::MATH_THREADS;
    if (thread >= 32) {
        if constexpr (Tile::SWAPPED)
            if (has_bytes(operands))
                load_factors<true>(tile, order, operands, thread - 32);
            else
                load_factors<false>(tile, order, operands, thread - 32);
        else
            load_scales(tile, order, operands, thread - 32);
    } else if (OfWarps<Order> || thread == 0) {
        load_elements(tile, order, operands, thread, weights_ahead);
    }
}

// What the partial sums of a wave (64 rows) are multiplied by.
template <class Tile, bool SWAPPED = Tile::SWAPPED>
struct Factors;

template <class Tile>
struct Factors<Tile, false> {  // rows are tokens, each with a scale; a thread has two. Columns have one, or some of them
    static constexpr bool IN_THE_STAGE = false;
    static constexpr int PARTS =
        Tile::STRADDLES ? Tile::WEIGHT_SCALES : (Tile::COLUMNS + Tile::WEIGHTS_A_SCALE - 1) / Tile::WEIGHTS_A_SCALE;
    float row[PARTS][2];

    __device__ __forceinline__ Factors(const Tile& tile, int stage, int first_row, int first_column = 0) {
        const float* scales = tile.token_scales[stage] + first_row + accumulator_row(0);
#pragma unroll
        for (int part = 0; part < PARTS; part++) {
            const float weight = tile.weight_scales[stage][first_column / Tile::WEIGHTS_A_SCALE + part];
            row[part][0] = scales[0] * weight;
            row[part][1] = scales[8] * weight;
        }
    }
    template <int SPLIT>
    __device__ __forceinline__ float of(int j) const {
        const int column = j / 4 * 8;
        constexpr int NEXT = SPLIT + SCALE_BLOCK;
        return row[Tile::STRADDLES ? (column >= SPLIT) + (column >= NEXT) : column / Tile::WEIGHTS_A_SCALE][j / 2 % 2];
    }
};

template <class Tile>
struct Factors<Tile, true> {  // columns are tokens: the loaders have multiplied; a thread has two of every eight
    static constexpr int SUMS = Tile::SUMS % 8 == 0 ? 8 : 4, PIECES = Tile::SUMS / SUMS;  // a piece is for so many sums
    // Pieces that are read while the wgmmas run: all, and the stage is free when they are over, or as many as there are registers.
    static constexpr int AHEAD = PIECES <= 2 || PIECES <= 8 && Tile::WARPGROUPS < 3 && !Tile::OVERLAPPED ? PIECES
                                 : PIECES == 8 && Tile::WARPGROUPS == 1                                  ? 4
                                                                                                         : 1;
    static constexpr bool IN_THE_STAGE = AHEAD < PIECES;
    struct alignas(SUMS * 2) Piece {
        float of[SUMS / 2];
    };
    Piece first[AHEAD];
    const Piece* pieces;

    __device__ __forceinline__ Factors(const Tile& tile, int stage, int first_row, int = 0) {
        if constexpr (Tile::WEIGHTS_AN_ENTRY < WGMMA_ROWS) first_row += threadIdx.x % WARPGROUP / 32 * 16;  // a warp has 16 rows
        const int entry = first_row / Tile::WEIGHTS_AN_ENTRY;
        pieces = reinterpret_cast<const Piece*>(tile.token_scales[stage][entry][threadIdx.x % 4]);
#pragma unroll
        for (int i = 0; i < AHEAD; i++) first[i] = pieces[i];
    }
};

// A wave's wgmmas over one block of K, as one group.
template <class Tile>
__device__ __forceinline__ void start_wave(const Tile& tile, int stage, int row, int column, float (&partial)[Tile::SUMS]) {
    const uint8_t* rows = Tile::SWAPPED ? tile.weights[stage] : tile.tokens[stage];
    const uint8_t* columns = Tile::SWAPPED ? tile.tokens[stage] : tile.weights[stage];
    const uint64_t a = matrix_descriptor(rows + row * SCALE_BLOCK), b = matrix_descriptor(columns + column * SCALE_BLOCK);
    hold(partial);
    fence_registers();
#pragma unroll
    for (int step = 0; step < SCALE_BLOCK / WGMMA_DEPTH; step++)
        multiply<Tile::COLUMNS>(partial, a + 2 * step, b + 2 * step, step > 0);
    commit_multiplications();
    hold(partial);
}

// Where tokens are columns.
template <class Tile>
__device__ __forceinline__ void promote_columns(float (&sums)[Tile::SUMS], const float (&partial)[Tile::SUMS],
                                                const Factors<Tile>& factors) {
    using F = Factors<Tile>;
    typename F::Piece pieces[F::PIECES];
#pragma unroll
    for (int i = 0; i < F::AHEAD; i++) pieces[i] = factors.first[i];
#pragma unroll
    for (int i = 0; i < F::PIECES; i++) {
        if (i + F::AHEAD < F::PIECES) pieces[i + F::AHEAD] = factors.pieces[i + F::AHEAD];
#pragma unroll
        for (int j = 0; j < F::SUMS; j++)
            sums[i * F::SUMS + j] = fmaf(partial[i * F::SUMS + j], pieces[i].of[j / 4 * 2 + j % 2], sums[i * F::SUMS + j]);
    }
}

// SPLIT: so many columns have the first scale of B.
template <class Tile, int SPLIT = Tile::COLUMNS>
__device__ __forceinline__ void promote(float (&sums)[Tile::SUMS], const float (&partial)[Tile::SUMS],
                                        const Factors<Tile>& factors) {
    if constexpr (Tile::SWAPPED) {
        promote_columns(sums, partial, factors);
    } else {
#pragma unroll
        for (int j = 0; j < Tile::SUMS; j++) sums[j] = fmaf(partial[j], factors.template of<SPLIT>(j), sums[j]);
    }
}

// The two ways to go through the blocks. Two sets of partial sums: the next block's wgmmas run while this one's sums are
// promoted. One set, where two take more registers than there are: only other warpgroups' wgmmas run meanwhile.
template <class Tile, int SPLIT>
__device__ __forceinline__ void multiply_overlapped(Tile& tile, Ring<Tile::STAGES>& ring, int blocks, int row,
                                                    float (&sums)[Tile::SUMS]) {
    // Where neither clusters nor gates are, ptxas learns by votes alone that lanes go on together: else descriptors go through vector
    // registers. Where they are it knows, and a vote costs time.
    constexpr bool VOTES = Tile::SWAPPED && Tile::TOGETHER == 1 && Tile::SHARERS == 1 && Tile::WEIGHTS_A_SCALE == SCALE_BLOCK;
    if (VOTES ? __all_sync(0xFFFFFFFF, blocks == 0) != 0 : blocks == 0) return;
    float even[Tile::SUMS], odd[Tile::SUMS];
    int stage;  // of the block whose wgmmas are running
    auto start = [&](float (&partial)[Tile::SUMS]) {
        tile.wait_until_full(ring);
        stage = ring.stage;
        start_wave(tile, stage, row, 0, partial);
        ring.advance();
    };
    auto finish = [&](const Factors<Tile>& factors, int finished, float (&partial)[Tile::SUMS]) {
        hold(partial);
        if constexpr (!Factors<Tile>::IN_THE_STAGE) tile.release(finished);
        promote<Tile, SPLIT>(sums, partial, factors);
        if constexpr (Factors<Tile>::IN_THE_STAGE) tile.release(finished);
    };
    auto step = [&](float (&running)[Tile::SUMS], float (&next)[Tile::SUMS]) {
        const Factors<Tile> factors(tile, stage, row);
        const int finished = stage;
        start(next);
        wait_for_multiplications<1>();
        finish(factors, finished, running);
    };
    auto end = [&](float (&running)[Tile::SUMS]) {
        const Factors<Tile> factors(tile, stage, row);
        wait_for_multiplications<0>();
        finish(factors, stage, running);
    };
    start(even);
    for (; VOTES ? __any_sync(0xFFFFFFFF, blocks > 2) != 0 : blocks > 2; blocks -= 2) {
        step(even, odd);
        step(odd, even);
    }
    if (blocks == 2) {
        step(even, odd);
        end(odd);
    } else {
        end(even);
    }
}

template <class Tile, int SPLIT>
__device__ __forceinline__ void multiply_in_turn(Tile& tile, Ring<Tile::STAGES>& ring, int blocks, int first_row,
                                                 float (&sums)[Tile::WAVES][Tile::SUMS]) {
    // Unrolled, the next stage is asked for while the last wave is promoted; rolled, after it.
    // Not where there are so many loops: 250 KB of code.
    constexpr int UNROLLED = Tile::SWAPPED || Tile::STRADDLES ? 1 : 4;
#pragma unroll UNROLLED
    for (; blocks > 0; blocks--, ring.advance()) {
        tile.wait_until_full(ring);
#pragma unroll
        for (int wave = 0; wave < Tile::WAVES; wave++) {
            const int row = first_row + wave / Tile::COLUMN_WAVES * WGMMA_ROWS;
            const int column = wave % Tile::COLUMN_WAVES * Tile::COLUMNS;
            const Factors<Tile> factors(tile, ring.stage, row, column);
            constexpr bool READ = !Factors<Tile>::IN_THE_STAGE;
            float partial[Tile::SUMS];
            start_wave(tile, ring.stage, row, column, partial);
            wait_for_multiplications<0>();
            hold(partial);
            if (READ && wave == Tile::WAVES - 1) tile.release(ring.stage);
            promote<Tile, SPLIT>(sums[wave], partial, factors);
            if (!READ && wave == Tile::WAVES - 1) tile.release(ring.stage);
        }
    }
}

template <class Tile, int SPLIT>
__device__ __forceinline__ void multiply_blocks(Tile& tile, Ring<Tile::STAGES>& ring, int blocks, int first_row,
                                                float (&sums)[Tile::WAVES][Tile::SUMS]) {
    if constexpr (Tile::OVERLAPPED) {
        multiply_overlapped<Tile, SPLIT>(tile, ring, blocks, first_row, sums[0]);
    } else {
        multiply_in_turn<Tile, SPLIT>(tile, ring, blocks, first_row, sums);
    }
}

// A loop for each number of columns that may have the first scale, so that no promotion asks which.
template <class Tile, int SPLIT>
__device__ __forceinline__ void multiply_split(Tile& tile, Ring<Tile::STAGES>& ring, int blocks, int first_row, int split,
                                               float (&sums)[Tile::WAVES][Tile::SUMS]) {
    if constexpr (SPLIT < Tile::COLUMNS) {
        if (split > SPLIT) return multiply_split<Tile, SPLIT + Tile::SPLIT_UNIT>(tile, ring, blocks, first_row, split, sums);
    }
    multiply_blocks<Tile, SPLIT>(tile, ring, blocks, first_row, sums);
}

// The blocks of a tile whose first wave is running already, its sums in `partial`.
template <class Tile>
__device__ __forceinline__ void multiply_started(Tile& tile, Ring<Tile::STAGES>& ring, int blocks, int first_row,
                                                 float (&partial)[Tile::SUMS], float (&sums)[Tile::WAVES][Tile::SUMS]) {
    static_assert(!Tile::SWAPPED && !Tile::OVERLAPPED && !Tile::STRADDLES && Tile::COLUMN_WAVES == 1);
    auto multiply_wave = [&](int wave, bool started) {
        const int row = first_row + wave * WGMMA_ROWS;
        const Factors<Tile> factors(tile, ring.stage, row);
        if (!started) start_wave(tile, ring.stage, row, 0, partial);
        wait_for_multiplications<0>();
        hold(partial);
        if (wave == Tile::WAVES - 1) tile.release(ring.stage);
        promote(sums[wave], partial, factors);
    };
#pragma unroll
    for (int wave = 0; wave < Tile::WAVES; wave++)
#pragma unroll
        for (int j = 0; j < Tile::SUMS; j++) sums[wave][j] = 0;
#pragma unroll
    for (int wave = 0; wave < Tile::WAVES; wave++) multiply_wave(wave, wave == 0);
    ring.advance();
#pragma unroll 4
    for (blocks--; blocks > 0; blocks--, ring.advance()) {
        tile.wait_until_full(ring);
#pragma unroll
        for (int wave = 0; wave < Tile::WAVES; wave++) multiply_wave(wave, false);
    }
}

// By a multiplying warpgroup: its waves of one tile of D, which begins at column `column`.
template <class Tile>
__device__ __forceinline__ void multiply(Tile& tile, Ring<Tile::STAGES>& ring, int blocks, float (&sums)[Tile::WAVES][Tile::SUMS],
                                         int column = 0) {
    const int first_row = warpgroup_index() * (Tile::ROW_WAVES * WGMMA_ROWS);
#pragma unroll
    for (int wave = 0; wave < Tile::WAVES; wave++)
#pragma unroll
        for (int j = 0; j < Tile::SUMS; j++) sums[wave][j] = 0;
    if constexpr (Tile::STRADDLES)
        multiply_split<Tile, Tile::SPLIT_UNIT>(tile, ring, blocks, first_row, SCALE_BLOCK - column % SCALE_BLOCK, sums);
    else
        multiply_blocks<Tile, Tile::COLUMNS>(tile, ring, blocks, first_row, sums);
}

}  // namespace zoo
