// The pipeline of many tokens with an overlapped epilogue: the tensor cores multiply the next tile while D is stored. In many_tokens.cuh, a
// warpgroup of 192 x 128 spends 2100 to 2400 cycles between two tiles of 16000 cycles (H200, K = 2048): 350 to 1000 to find the
// next tile, 1000 to 1800 to store D. Here:
//
//     # tensor cores, p promotion
//     copying thread    ... t8 | finds tile u, announces it | u0 u1 u2 ...
//     warpgroup         ... t7 ####pp  t8 ####pp  u0 ####[sums of t are stored]pp  u1 ####pp
//
// - The copying thread announces a tile in the stage of its first K block. Math warps neither walk along groups nor divide.
// - The first wgmmas of the next tile run while a warp stores its sums.
//
// This is faster for 256 x 128 and not for 192 x 128 (docs/lab/fp8_gemm_many_tokens.md).
#pragma once

#include "common/dependent_launch.cuh"
#include "common/registers.cuh"
#include "gemm/hopper_fp8/mainloop.cuh"
#include "gemm/hopper_fp8/producer.cuh"
#include "gemm/hopper_fp8/store_rows.cuh"

namespace zoo {

// Tells math warps which tile begins in a stage.
struct alignas(16) AnnouncedTile {
    int token, weight, end_token, more;  // more: a tile follows this tile
};

// Loads elements like load_elements(), and announces each tile.
template <class Tile, class Schedule, class Operands>
__device__ __forceinline__ void load_and_announce_tiles(Tile& tile, AnnouncedTile (&announced)[Tile::STAGES], Schedule schedule,
                                                        const Operands& operands, int lane) {
    Ring<Tile::STAGES> ring;
    Work work, next;
    for (bool more = schedule.next(work); more; work = next) {
        more = schedule.next(next);
        if (WarpCollective<Schedule> && lane > 0) continue;
        for (int block = work.first_block; block < work.end_block; block++, ring.advance()) {
            tile.wait_until_empty(ring);
            if (block == work.first_block) announced[ring.stage] = {work.token, work.weight, work.end_token, more};
            operands.load_weights(tile, ring.stage, work, block);
            operands.load_tokens(tile, ring.stage, work, block);
        }
    }
}

template <class Tile>
struct OverlappedEpilogue {
    Tile tile;
    RowBuffer buffers[Tile::MATH_WARPS];
    AnnouncedTile announced[Tile::STAGES];

    // Schedules read global memory only in next(), which runs after the previous kernel has ended.
    template <TileSchedule Schedule, OperandsOf<Tile> Operands, StoresPassOf<Tile::SUMS> Target>
    __device__ __forceinline__ void run(Schedule schedule, const Operands& operands, const Target& d, EarlyLoads = {}) {
        let_next_kernel_launch();
        if (threadIdx.x == 0) {
            operands.prefetch_maps();
            tile.initialise();
        }
        clear_missing_tokens(tile, operands);
        __syncthreads();
        wait_for_previous_kernel();

        const int thread = threadIdx.x - Tile::MATH_THREADS;
        if (thread >= 0) {
            if constexpr (Tile::REALLOCATES_REGISTERS) lower_registers_to<Tile::LOADER_REGISTERS>();
            if (thread >= 32)
                load_scales(tile, schedule, operands, thread - 32);
            else if (WarpCollective<Schedule> || thread == 0)
                load_and_announce_tiles(tile, announced, schedule, operands, thread);
        } else {
            if constexpr (Tile::REALLOCATES_REGISTERS) raise_registers_to<Tile::MATH_REGISTERS>();
            Work work;
            if (schedule.next(work)) multiply_and_store(d, schedule.blocks, work);
        }
    }

    template <class Target>
    __device__ __forceinline__ void multiply_and_store(const Target& d, int blocks, Work work) {
        const int first_row = warpgroup_index() * (Tile::ROW_PASSES * WGMMA_ROWS);
        Ring<Tile::STAGES> ring;
        float partial[Tile::SUMS];
        tile.wait_until_full(ring);
        start_pass(tile, ring.stage, first_row, 0, partial);
        for (;;) {
            const bool more = __any_sync(0xFFFFFFFF, announced[ring.stage].more);
            float sums[Tile::PASSES][Tile::SUMS];
            multiply_started(tile, ring, blocks, first_row, partial, sums);
            const Work done = work;
            if (!more) {
                store_passes(d, done, first_row, sums);
                break;
            }
            tile.wait_until_full(ring);
            start_pass(tile, ring.stage, first_row, 0, partial);
            const AnnouncedTile next = announced[ring.stage];
            work.token = next.token, work.weight = next.weight, work.end_token = next.end_token;
            store_passes(d, done, first_row, sums);
            __syncwarp();  // tells ptxas that the warp is converged: else it moves every descriptor to uniform registers again
        }
    }

    template <class Target, int PASSES, int SUMS>
    __device__ __forceinline__ void store_passes(const Target& d, const Work& work, int row, float (&sums)[PASSES][SUMS]) {
#pragma unroll
        for (int pass = 0; pass < PASSES; pass++)
            store(d, buffers[reread_thread_index() / 32], work, row + pass * WGMMA_ROWS, sums[pass]);
    }
};

}  // namespace zoo
