// The loop over K of a k_grouped GEMM: A and B have a scale for each row, so a partial sum is multiplied by the scales of its row and its column.
// Included by the pipeline of k_grouped.
//
// A thread has 2 of a pass's rows and 32 of its columns. Reads of shared memory bound the loop. The wgmmas of 64 x 128 x 128 read A, 8 KiB, and B,
// 16 KiB: 192 of their 256 cycles. For column scales each of four warps reads 4 KiB a pass, 32 cycles. So a warpgroup of two passes holds HELD
// column-scale pairs for its second pass. Keeping 14 of 16 column-scale pairs in registers shortens the loads of two passes from 68 cycles to 40.
//
//     warpgroup 0   ####pppppp  ####pppppp            # pass 0, 1: wgmmas        p promotion
//     warpgroup 1       ####pppppp  ####pppppp
//
// Without synchronisation, two warpgroups fall into step: both multiply at half the speed, then both promote while the tensor cores wait. So they
// ALTERNATE: a warpgroup waits before it starts a pass, and lets the other warpgroup start before it issues the last of four wgmmas. The
// tensor cores execute wgmmas in sequence, and find the other warpgroup's behind the last. Three warpgroups need not alternate.
//
// sum = fma(partial, row's scale * column's scale, sum).
#pragma once

#include <cstdint>

#include "common/mbarrier.cuh"
#include "common/shared_memory.cuh"
#include "common/wgmma.cuh"
#include "gemm/hopper_fp8/mainloop.cuh"

namespace zoo {

// A thread's scales of a K block: of its two rows in every pass, and of its columns, in pairs.
template <class Tile>
struct RowAndColumnScales {
    static constexpr int TWOS = Tile::SUMS / 4, HELD = Tile::COLUMNS_HELD, AHEAD = Tile::COLUMNS_AHEAD;
    uint32_t row_scales, column_scales;
    float rows[Tile::PASSES][2];
    float2 columns[TWOS];

    __device__ __forceinline__ RowAndColumnScales(const Tile& tile, int stage, int first_row)
        : row_scales(shared_address(tile.token_scales[stage] + first_row + accumulator_row(0))),
          column_scales(shared_address(tile.weight_scales[stage]) + threadIdx.x % 4 * 8) {}

    __device__ __forceinline__ void load_rows(int pass) {
#pragma unroll
        for (int i = 0; i < 2; i++) rows[pass][i] = load_shared(row_scales + (pass * WGMMA_ROWS + i * 8) * 4);
    }
    __device__ __forceinline__ void load_columns(int two) { columns[two] = load_two_shared(column_scales + two * 32); }
    __device__ __forceinline__ void load_held_columns() {
#pragma unroll
        for (int two = 0; two < HELD; two++) load_columns(two);
    }

    // Column-scale pairs that are not held are loaded AHEAD pairs before their use.
    __device__ __forceinline__ void promote(int pass, const float (&partial)[Tile::SUMS], float (&sums)[Tile::SUMS]) {
#pragma unroll
        for (int two = 0; two < TWOS; two++) {
            const int next = two + AHEAD;
            if (next < TWOS && next >= HELD) load_columns(next);
#pragma unroll
            for (int i = 0; i < 2; i++) {
                const int j = two * 4 + i * 2;
                sums[j] = fmaf(partial[j], rows[pass][i] * columns[two].x, sums[j]);
                sums[j + 1] = fmaf(partial[j + 1], rows[pass][i] * columns[two].y, sums[j + 1]);
            }
        }
    }
};

// Both loops end by a vote, because the number of K blocks was read from memory. The vote tells the compiler that the warp stays converged and that
// the stage is uniform. Else it would issue 16 R2UR before the wgmmas of a K block.
template <class Tile>
    requires(Tile::WEIGHTS_PER_SCALE == 1 && !Tile::ALTERNATES)
__device__ __forceinline__ void multiply(Tile& tile, Ring<Tile::STAGES>& ring, int blocks,
                                         float (&sums)[Tile::PASSES][Tile::SUMS]) {
    static_assert(Tile::PASSES == 1);
    const int first_row = warpgroup_index() * WGMMA_ROWS;
    clear(sums);
#pragma unroll 1
    for (; __any_sync(0xFFFFFFFF, blocks > 0); blocks--, ring.advance()) {
        tile.wait_until_full(ring);
        RowAndColumnScales<Tile> scales(tile, ring.stage, first_row);
        float partial[Tile::SUMS];
        start_pass(tile, ring.stage, first_row, 0, partial);
        scales.load_rows(0);
        scales.load_held_columns();
        wait_for_multiplications<0>();
        hold(partial);
        scales.promote(0, partial, sums[0]);
        tile.release(ring.stage);
    }
}

// start_pass() when this warpgroup may start. `pass` counts the warpgroup's passes in the K block.
template <class Tile>
__device__ __forceinline__ void start_pass_alternating(Tile& tile, int own, int stage, int row, int pass,
                                                       float (&partial)[Tile::SUMS]) {
    constexpr int STEPS = SCALE_BLOCK / WGMMA_DEPTH;
    tile.wait_to_start(own, pass);
    const uint64_t a = matrix_descriptor(tile.tokens[stage] + row * SCALE_BLOCK), b = matrix_descriptor(tile.weights[stage]);
    hold(partial);
    fence_registers();
#pragma unroll
    for (int step = 0; step < STEPS; step++) {
        if (step == STEPS - 1) tile.let_other_start(own);
        multiply<Tile::COLUMNS>(partial, a + 2 * step, b + 2 * step, step > 0);
    }
    commit_multiplications();
    hold(partial);
}

// Tests without waiting whether the phase of this parity is over.
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

// The held scales are loaded before the warpgroup may start: a load between wgmmas would delay the next wgmma. The next stage is tested before the
// last promotion of a K block, which takes 300 cycles. After it, a warp waits only if the stage was not full. A full stage stays full,
// because this warpgroup has not released it.
template <class Tile>
    requires(Tile::WEIGHTS_PER_SCALE == 1 && Tile::ALTERNATES)
__device__ __forceinline__ void multiply(Tile& tile, Ring<Tile::STAGES>& ring, int blocks,
                                         float (&sums)[Tile::PASSES][Tile::SUMS]) {
    const int own = warpgroup_index(), first_row = own * (Tile::PASSES * WGMMA_ROWS);
    clear(sums);
    bool more = __any_sync(0xFFFFFFFF, blocks > 0);
    uint32_t full = 0;  // whether the stage was full when it was tested
#pragma unroll 1
    while (more) {
        if (!full) tile.wait_until_full(ring);
        more = __any_sync(0xFFFFFFFF, --blocks > 0);
        const int stage = ring.stage;
        ring.advance();
        RowAndColumnScales<Tile> scales(tile, stage, first_row);
#pragma unroll
        for (int pass = 0; pass < Tile::PASSES; pass++) scales.load_rows(pass);
        scales.load_held_columns();
#pragma unroll
        for (int pass = 0; pass < Tile::PASSES; pass++) {
            float partial[Tile::SUMS];
            start_pass_alternating(tile, own, stage, first_row + pass * WGMMA_ROWS, pass, partial);
            wait_for_multiplications<0>();
            hold(partial);
            if (pass == Tile::PASSES - 1) full = is_over(&tile.full[ring.stage], ring.parity);
            scales.promote(pass, partial, sums[pass]);
        }
        tile.release(stage);
    }
}

}  // namespace zoo
