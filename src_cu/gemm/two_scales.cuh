// The loop over K where A and B both have a scale for each row, so that a partial sum's factor is its row's times its column's.
//
// A thread has 2 of a wave's rows and 32 of its columns. What bounds the loop is the way from shared memory to registers: the
// wgmmas themselves take 3 of 4 cycles of it (64 x 128 x 128: A 8 KiB, B 16 KiB, 192 of 256 cycles), and the columns' scales, of
// which each warp reads 4 KiB a wave, 32 cycles for each of four warps. So a warpgroup of two waves keeps HELD pairs of columns
// for the second: 40 loads for 2 waves where there were 68.
//
//     warpgroup 0   ####pppppp####pppppp              # wave 0, 1: wgmmas        p promotion
//     warpgroup 1         ####pppppp####pppppp
//
// sum = fma(partial, row's scale * column's scale, sum), as everywhere.
#pragma once

#include <cstdint>

#include "common/mbarrier.cuh"
#include "common/wgmma.cuh"
#include "gemm/fp8b128_mainloop.cuh"

namespace zoo {

// Volatile, so that loads stay where they are written: among the wgmmas of their wave, or one after the other during promotion.
__device__ __forceinline__ float load_shared(uint32_t address) {
    float one;
    asm volatile("ld.shared.f32 %0, [%1];" : "=f"(one) : "r"(address) : "memory");
    return one;
}

__device__ __forceinline__ float2 load_two_shared(uint32_t address) {
    float2 two;
    asm volatile("ld.shared.v2.f32 {%0, %1}, [%2];" : "=f"(two.x), "=f"(two.y) : "r"(address) : "memory");
    return two;
}

// The loop ends by a vote, for the number of blocks was read from memory: the compiler then knows all lanes to leave together,
// and with them the stage to be the same for the whole warp. Else 16 R2UR go before a block's wgmmas.
template <class Tile>
    requires(Tile::WEIGHTS_A_SCALE == 1)
__device__ __forceinline__ void multiply(Tile& tile, Ring<Tile::STAGES>& ring, int blocks,
                                         float (&sums)[Tile::WAVES][Tile::SUMS]) {
    constexpr int PAIRS = Tile::SUMS / 4, AHEAD = Tile::COLUMNS_AHEAD, HELD = Tile::COLUMNS_HELD;  // pairs of columns
    const int first_row = warpgroup_index() * (Tile::WAVES * WGMMA_ROWS);
#pragma unroll
    for (int wave = 0; wave < Tile::WAVES; wave++)
#pragma unroll
        for (int j = 0; j < Tile::SUMS; j++) sums[wave][j] = 0;
#pragma unroll 1
    for (; __any_sync(0xFFFFFFFF, blocks > 0); blocks--, ring.advance()) {
        tile.wait_until_full(ring);
        const uint32_t row_scales = shared_address(tile.token_scales[ring.stage] + first_row + accumulator_row(0));
        const uint32_t column_scales = shared_address(tile.weight_scales[ring.stage]) + threadIdx.x % 4 * 8;
        float2 columns[PAIRS];
#pragma unroll
        for (int wave = 0; wave < Tile::WAVES; wave++) {
            auto load_columns = [&](int pair) {
                if (wave == 0 || pair >= HELD) columns[pair] = load_two_shared(column_scales + pair * 32);
            };
            float partial[Tile::SUMS], row[2];
            start_wave(tile, ring.stage, first_row + wave * WGMMA_ROWS, 0, partial);
#pragma unroll
            for (int i = 0; i < 2; i++) row[i] = load_shared(row_scales + (wave * WGMMA_ROWS + i * 8) * 4);
#pragma unroll
            for (int pair = 0; pair < AHEAD; pair++) load_columns(pair);
            wait_for_multiplications<0>();
            hold(partial);
#pragma unroll
            for (int pair = 0; pair < PAIRS; pair++) {
                if (pair + AHEAD < PAIRS) load_columns(pair + AHEAD);
#pragma unroll
                for (int i = 0; i < 2; i++) {
                    const int j = pair * 4 + i * 2;
                    sums[wave][j] = fmaf(partial[j], row[i] * columns[pair].x, sums[wave][j]);
                    sums[wave][j + 1] = fmaf(partial[j + 1], row[i] * columns[pair].y, sums[wave][j + 1]);
                }
            }
        }
        tile.release(ring.stage);
    }
}

}  // namespace zoo
