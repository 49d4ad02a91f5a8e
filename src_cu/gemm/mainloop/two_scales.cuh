// The loop over K where A and B both have a scale for each row, so that a partial sum's factor is its row's times its column's.
//
// A thread has 2 of a wave's rows and 32 of its columns. What bounds the loop is the way from shared memory to registers: the
// wgmmas themselves take 3 of 4 cycles of it (64 x 128 x 128: A 8 KiB, B 16 KiB, 192 of 256 cycles), and the columns' scales, of
// which each warp reads 4 KiB a wave, 32 cycles for each of four warps. So a warpgroup of two waves keeps HELD pairs of columns
// for the second: with 14 of 16 they are 40 cycles of loads for 2 waves where there were 68.
//
//     warpgroup 0   ####pppppp  ####pppppp            # wave 0, 1: wgmmas        p promotion
//     warpgroup 1       ####pppppp  ####pppppp
//
// Two warpgroups fall into step if they are let: both multiply, each at half the speed, and then both promote while the tensor
// cores wait. So a wave's wgmmas wait for their turn, IN_TURN, and the turn is passed on before the last of four is issued: the
// tensor cores take them in order, and find the other warpgroup's behind it. Three warpgroups need no turns.
//
// sum = fma(partial, row's scale * column's scale, sum), as everywhere.
#pragma once

#include <cstdint>

#include "common/mbarrier.cuh"
#include "common/shared_memory.cuh"
#include "common/wgmma.cuh"
#include "gemm/mainloop/fp8b128_mainloop.cuh"

namespace zoo {

// A thread's scales in one block of K: of its two rows in every wave, and of its columns, by pairs.
template <class Tile>
struct TwoScales {
    static constexpr int PAIRS = Tile::SUMS / 4, HELD = Tile::COLUMNS_HELD, AHEAD = Tile::COLUMNS_AHEAD;
    uint32_t row_scales, column_scales;
    float rows[Tile::WAVES][2];
    float2 columns[PAIRS];

    __device__ __forceinline__ TwoScales(const Tile& tile, int stage, int first_row)
        : row_scales(shared_address(tile.token_scales[stage] + first_row + accumulator_row(0))),
          column_scales(shared_address(tile.weight_scales[stage]) + threadIdx.x % 4 * 8) {}

    __device__ __forceinline__ void load_rows(int wave) {
#pragma unroll
        for (int i = 0; i < 2; i++) rows[wave][i] = load_shared(row_scales + (wave * WGMMA_ROWS + i * 8) * 4);
    }
    __device__ __forceinline__ void load_columns(int pair) { columns[pair] = load_two_shared(column_scales + pair * 32); }
    __device__ __forceinline__ void load_held_columns() {
#pragma unroll
        for (int pair = 0; pair < HELD; pair++) load_columns(pair);
    }

    // The columns that are not held come AHEAD pairs before they are used.
    __device__ __forceinline__ void promote(int wave, const float (&partial)[Tile::SUMS], float (&sums)[Tile::SUMS]) {
#pragma unroll
        for (int pair = 0; pair < PAIRS; pair++) {
            const int next = pair + AHEAD;
            if (next < PAIRS && next >= HELD) load_columns(next);
#pragma unroll
            for (int i = 0; i < 2; i++) {
                const int j = pair * 4 + i * 2;
                sums[j] = fmaf(partial[j], rows[wave][i] * columns[pair].x, sums[j]);
                sums[j + 1] = fmaf(partial[j + 1], rows[wave][i] * columns[pair].y, sums[j + 1]);
            }
        }
    }
};

// Both loops end by a vote, for the number of blocks was read from memory: the compiler then knows all lanes to leave together,
// and with them the stage to be the same for the whole warp. Else 16 R2UR go before a block's wgmmas.
template <class Tile>
    requires(Tile::WEIGHTS_A_SCALE == 1 && !Tile::IN_TURN)
__device__ __forceinline__ void multiply(Tile& tile, Ring<Tile::STAGES>& ring, int blocks,
                                         float (&sums)[Tile::WAVES][Tile::SUMS]) {
    static_assert(Tile::WAVES == 1);
    const int first_row = warpgroup_index() * WGMMA_ROWS;
#pragma unroll
    for (int j = 0; j < Tile::SUMS; j++) sums[0][j] = 0;
#pragma unroll 1
    for (; __any_sync(0xFFFFFFFF, blocks > 0); blocks--, ring.advance()) {
        tile.wait_until_full(ring);
        TwoScales<Tile> scales(tile, ring.stage, first_row);
        float partial[Tile::SUMS];
        start_wave(tile, ring.stage, first_row, 0, partial);
        scales.load_rows(0);
        scales.load_held_columns();
        wait_for_multiplications<0>();
        hold(partial);
        scales.promote(0, partial, sums[0]);
        tile.release(ring.stage);
    }
}

// A wave's wgmmas over one block of K, as one group, in this warpgroup's turn.
template <class Tile>
__device__ __forceinline__ void start_wave_in_turn(Tile& tile, int own, int stage, int row, int turn,
                                                   float (&partial)[Tile::SUMS]) {
    constexpr int STEPS = SCALE_BLOCK / WGMMA_DEPTH;
    tile.wait_for_turn(own, turn);
    const uint64_t a = matrix_descriptor(tile.tokens[stage] + row * SCALE_BLOCK), b = matrix_descriptor(tile.weights[stage]);
    hold(partial);
    fence_registers();
#pragma unroll
    for (int step = 0; step < STEPS; step++) {
        if (step == STEPS - 1) tile.pass_turn(own);
        multiply<Tile::COLUMNS>(partial, a + 2 * step, b + 2 * step, step > 0);
    }
    commit_multiplications();
    hold(partial);
}

// Whether the phase of this parity is over; asked early, for an answer that is used later.
__device__ __forceinline__ uint32_t is_over(Barrier* barrier, uint32_t parity) {
    uint32_t over;
    asm volatile(
        "{\n\t"
        ".reg .pred over;\n\t"
        "mbarrier.test_wait.parity.shared::cta.b64 over, [%1], %2;\n\t"
        "selp.u32 %0, 1, 0, over;\n\t"
        "}"
        : "=r"(over)
        : "r"(shared_address(barrier)), "r"(parity)
        : "memory");
    return over;
}

// In turn, the scales that are held are loaded before the turn: between wgmmas, a load keeps the next from being issued. Whether
// the next stage is full is asked before the block's last promotion, 300 cycles, and the answer used after it: who was told yes
// waits for nothing. A yes stays true, for this warpgroup has not released that stage yet.
template <class Tile>
    requires(Tile::WEIGHTS_A_SCALE == 1 && Tile::IN_TURN)
__device__ __forceinline__ void multiply(Tile& tile, Ring<Tile::STAGES>& ring, int blocks,
                                         float (&sums)[Tile::WAVES][Tile::SUMS]) {
    const int own = warpgroup_index(), first_row = own * (Tile::WAVES * WGMMA_ROWS);
#pragma unroll
    for (int wave = 0; wave < Tile::WAVES; wave++)
#pragma unroll
        for (int j = 0; j < Tile::SUMS; j++) sums[wave][j] = 0;
    bool more = __any_sync(0xFFFFFFFF, blocks > 0);
    uint32_t full = 0;  // the stage was, when it was asked
#pragma unroll 1
    while (more) {
        if (!full) tile.wait_until_full(ring);
        more = __any_sync(0xFFFFFFFF, --blocks > 0);
        const int stage = ring.stage;
        ring.advance();
        TwoScales<Tile> scales(tile, stage, first_row);
#pragma unroll
        for (int wave = 0; wave < Tile::WAVES; wave++) scales.load_rows(wave);
        scales.load_held_columns();
#pragma unroll
        for (int wave = 0; wave < Tile::WAVES; wave++) {
            float partial[Tile::SUMS];
            start_wave_in_turn(tile, own, stage, first_row + wave * WGMMA_ROWS, wave, partial);
            wait_for_multiplications<0>();
            hold(partial);
            if (wave == Tile::WAVES - 1) full = is_over(&tile.full[ring.stage], ring.parity);
            scales.promote(wave, partial, sums[wave]);
        }
        tile.release(stage);
    }
}

}  // namespace zoo
