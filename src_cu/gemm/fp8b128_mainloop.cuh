// The loop over K of an fp8b128 GEMM. Some warps load; the others multiply a stage, give it back, and promote:
//
//     load        |0 1 2 3| wait for 0 to be given back, 4, wait for 1, 5 ...
//     warpgroup 0 |   0 ####pp 1 ####pp 2 ####pp          # tensor cores: four wgmmas, 128 along K
//     warpgroup 1 |       0 ####pp 1 ####pp 2 ####pp      p promotion: partial sums * scales are added in f32
//
// The tensor cores keep 13 bits of fraction, so the sum of one block of K must leave them; a block's two scales go on it
// then. Promotion costs one fused multiply-add for 128 of the tensor cores', a quarter of their time. While one
// warpgroup promotes, the others' wgmmas run; nothing but the stages ties them together. Seen: three warpgroups keep the
// tensor cores 99 % busy, two 87 %, with two sets of partial sums each as well.
//
// What is computed, to the bit, for every element: scale = a_scale * b_scale, rounded; sum = fma(partial, scale, sum), block
// after block; partial is four wgmmas, each adding 32 products as docs/emulator_arithmetic.md says.
#pragma once

#include <cstdint>

#include "common/mbarrier.cuh"
#include "common/wgmma.cuh"
#include "gemm/fp8b128_tile.cuh"
#include "gemm/operands.cuh"

namespace zoo {

// By one thread, for all of its CTA's work.
template <class Tile, class Order, class Operands>
__device__ __forceinline__ void load_elements(Tile& tile, Order order, const Operands& operands) {
    Ring<Tile::STAGES> ring;
    for (Work work; order.next(work);)
        for (int block = work.first_block; block < work.end_block; block++, ring.advance()) {
            tile.wait_until_empty(ring);
            operands.load_elements(tile, ring.stage, work, block);
        }
}

// By the scale warps: each thread brings the scales of some rows. They wait for memory, so they are not those that copy.
template <class Tile, class Order, class Operands>
__device__ __forceinline__ void load_scales(Tile& tile, Order order, const Operands& operands, int thread) {
    constexpr int AHEAD = RowScales::AHEAD, THREADS = Tile::SCALE_THREADS;
    constexpr int ROUNDS = (Tile::TOKENS + Tile::WEIGHT_SCALES + THREADS - 1) / THREADS;
    // Of the rows that threads take in turn, the first are tokens, then come weights, then nothing.
    auto is_token = [&](int round) {
        return (round + 1) * THREADS <= Tile::TOKENS || round * THREADS + thread < Tile::TOKENS;
    };
    auto is_weight = [&](int round) {
        const int row = round * THREADS + thread;
        return !is_token(round) && row < Tile::TOKENS + Tile::WEIGHT_SCALES;
    };
    Ring<Tile::STAGES> ring;
    for (Work work; order.next(work);) {
        RowScales rows[ROUNDS];
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

// By the loading warps: the first copies elements, the others bring scales.
template <class Tile, class Order, class Operands>
__device__ __forceinline__ void load(Tile& tile, Order order, const Operands& operands) {
    const int thread = threadIdx.x - Tile::MATH_THREADS;
    if (thread >= 32)
        load_scales(tile, order, operands, thread - 32);
    else if (thread == 0)
        load_elements(tile, order, operands);
}

// What the partial sums of a wave (64 rows) are multiplied by.
template <class Tile, bool SWAPPED = Tile::SWAPPED, bool EACH_WEIGHT = Tile::WEIGHTS_A_SCALE == 1>
struct Factors;

template <class Tile>
struct Factors<Tile, false, false> {  // rows are tokens, each with a scale; a thread has two
    static constexpr bool IN_THE_STAGE = false;
    float row[2];

    __device__ __forceinline__ Factors(const Tile& tile, int stage, int first_row) {
        const float* scales = tile.token_scales[stage] + first_row + accumulator_row(0);
        const float weight = tile.weight_scales[stage][0];
        row[0] = scales[0] * weight;
        row[1] = scales[8] * weight;
    }
    __device__ __forceinline__ float of(int j) const { return row[j / 2 % 2]; }
};

template <class Tile>
struct Factors<Tile, false, true> {  // as before, and columns are weights with a scale each; a thread has two of every eight
    static constexpr bool IN_THE_STAGE = true;
    static constexpr int AHEAD = 2;  // pairs of columns on their way; the first come while the wgmmas run
    float row[2];
    float2 first[AHEAD];
    const float2* columns;

    __device__ __forceinline__ Factors(const Tile& tile, int stage, int first_row)
        : columns(reinterpret_cast<const float2*>(tile.weight_scales[stage]) + threadIdx.x % 4) {
        const float* scales = tile.token_scales[stage] + first_row + accumulator_row(0);
        row[0] = scales[0];
        row[1] = scales[8];
#pragma unroll
        for (int i = 0; i < AHEAD; i++) first[i] = columns[i * 4];
    }
};

template <class Tile>
struct Factors<Tile, true, false> {  // columns are tokens; a thread has two of every eight, too many to keep in registers
    static constexpr bool IN_THE_STAGE = true;  // read when they are used: the stage is still needed then
    const float* columns;
    float weight;

    __device__ __forceinline__ Factors(const Tile& tile, int stage, int first_row)
        : columns(tile.token_scales[stage]), weight(tile.weight_scales[stage][first_row / SCALE_BLOCK]) {}
    __device__ __forceinline__ float of(int j) const { return columns[accumulator_column(j)] * weight; }
};

// A wave's wgmmas over one block of K, as one group.
template <class Tile>
__device__ __forceinline__ void start_wave(const Tile& tile, int stage, int row, float (&partial)[Tile::SUMS]) {
    const uint8_t* rows = Tile::SWAPPED ? tile.weights[stage] : tile.tokens[stage];
    const uint8_t* columns = Tile::SWAPPED ? tile.tokens[stage] : tile.weights[stage];
    const uint64_t a = matrix_descriptor(rows + row * SCALE_BLOCK), b = matrix_descriptor(columns);
    hold(partial);
    fence_registers();
#pragma unroll
    for (int step = 0; step < SCALE_BLOCK / WGMMA_DEPTH; step++)
        multiply<Tile::COLUMNS>(partial, a + 2 * step, b + 2 * step, step > 0);
    commit_multiplications();
    hold(partial);
}

// Where every column has a factor of its own: two multiplications for each sum, and scales that must not be waited for.
template <class Tile>
__device__ __forceinline__ void promote_each(float (&sums)[Tile::SUMS], const float (&partial)[Tile::SUMS],
                                             const Factors<Tile>& factors) {
    constexpr int PAIRS = Tile::SUMS / 4, AHEAD = Factors<Tile>::AHEAD;
    float2 columns[PAIRS + AHEAD];
#pragma unroll
    for (int i = 0; i < AHEAD; i++) columns[i] = factors.first[i];
#pragma unroll
    for (int i = 0; i < PAIRS; i++) {
        if (i + AHEAD < PAIRS) columns[i + AHEAD] = factors.columns[(i + AHEAD) * 4];
#pragma unroll
        for (int row = 0; row < 2; row++) {
            const int j = i * 4 + row * 2;
            sums[j] = fmaf(partial[j], factors.row[row] * columns[i].x, sums[j]);
            sums[j + 1] = fmaf(partial[j + 1], factors.row[row] * columns[i].y, sums[j + 1]);
        }
    }
}

template <class Tile>
__device__ __forceinline__ void promote(float (&sums)[Tile::SUMS], const float (&partial)[Tile::SUMS],
                                        const Factors<Tile>& factors) {
    if constexpr (Tile::WEIGHTS_A_SCALE == 1) {
        promote_each(sums, partial, factors);
    } else {
#pragma unroll
        for (int j = 0; j < Tile::SUMS; j++) sums[j] = fmaf(partial[j], factors.of(j), sums[j]);
    }
}

// The two ways to go through the blocks. Two sets of partial sums: the next block's wgmmas run while this one's sums are
// promoted. One set, where two take more registers than there are: only other warpgroups' wgmmas run meanwhile.
template <class Tile>
__device__ __forceinline__ void multiply_overlapped(Tile& tile, Ring<Tile::STAGES>& ring, int blocks, int row,
                                                    float (&sums)[Tile::SUMS]) {
    if (blocks == 0) return;
    float even[Tile::SUMS], odd[Tile::SUMS];
    int stage;  // of the block whose wgmmas are running
    auto start = [&](float (&partial)[Tile::SUMS]) {
        tile.wait_until_full(ring);
        stage = ring.stage;
        start_wave(tile, stage, row, partial);
        ring.advance();
    };
    auto finish = [&](const Factors<Tile>& factors, int finished, float (&partial)[Tile::SUMS]) {
        hold(partial);
        if constexpr (!Factors<Tile>::IN_THE_STAGE) tile.release(finished);
        promote(sums, partial, factors);
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
    for (; blocks > 2; blocks -= 2) {
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

// Where the number of blocks was read from memory (UNEVEN), the loop ends by a vote: the compiler then knows all lanes to leave
// together, and with them the stage to be the same for the whole warp. Else 16 R2UR go before a block's wgmmas.
template <bool UNEVEN, class Tile>
__device__ __forceinline__ void multiply_in_turn(Tile& tile, Ring<Tile::STAGES>& ring, int blocks, int first_row,
                                                 float (&sums)[Tile::WAVES][Tile::SUMS]) {
    for (; UNEVEN ? __any_sync(0xFFFFFFFF, blocks > 0) : blocks > 0; blocks--, ring.advance()) {
        tile.wait_until_full(ring);
#pragma unroll
        for (int wave = 0; wave < Tile::WAVES; wave++) {
            const int row = first_row + wave * WGMMA_ROWS;
            const Factors<Tile> factors(tile, ring.stage, row);
            constexpr bool READ = !Factors<Tile>::IN_THE_STAGE;
            float partial[Tile::SUMS];
            start_wave(tile, ring.stage, row, partial);
            wait_for_multiplications<0>();
            hold(partial);
            if (READ && wave == Tile::WAVES - 1) tile.release(ring.stage);
            promote(sums[wave], partial, factors);
            if (!READ && wave == Tile::WAVES - 1) tile.release(ring.stage);
        }
    }
}

// By a multiplying warpgroup: its waves of one tile of D.
template <bool UNEVEN = false, class Tile>
__device__ __forceinline__ void multiply(Tile& tile, Ring<Tile::STAGES>& ring, int blocks,
                                         float (&sums)[Tile::WAVES][Tile::SUMS]) {
    const int first_row = warpgroup_index() * (Tile::WAVES * WGMMA_ROWS);
#pragma unroll
    for (int wave = 0; wave < Tile::WAVES; wave++)
#pragma unroll
        for (int j = 0; j < Tile::SUMS; j++) sums[wave][j] = 0;
    if constexpr (Tile::OVERLAPPED) {
        multiply_overlapped(tile, ring, blocks, first_row, sums[0]);
    } else {
        multiply_in_turn<UNEVEN>(tile, ring, blocks, first_row, sums);
    }
}

}  // namespace zoo
