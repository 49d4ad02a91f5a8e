// The pipeline of many tokens: persistent CTAs, with tokens as the rows of wgmma. Each math warp stores its own rows of D and goes on to the next
// tile, which the producer warps have begun to load.
#pragma once

#include "common/dependent_launch.cuh"
#include "common/registers.cuh"
#include "gemm/hopper_fp8/mainloop.cuh"
#include "gemm/hopper_fp8/producer.cuh"
#include "gemm/hopper_fp8/store_rows.cuh"

namespace zoo {

template <class Tile>
struct ManyTokens {
    Tile tile;
    RowBuffer buffers[Tile::MATH_WARPS];

    // Schedules read global memory only in next(), which runs after the previous kernel has ended.
    template <TileSchedule Schedule, OperandsOf<Tile> Operands, StoresRowsOf<Tile> Target>
    __device__ __forceinline__ void run(Schedule schedule, const Operands& operands, const Target& d, EarlyLoads early = {}) {
        let_next_kernel_launch();
        if (threadIdx.x == 0) {
            operands.prefetch_maps();
            if constexpr (requires { tile.initialise(true); })
                tile.initialise(any_e8m0(operands));
            else
                tile.initialise();
            if constexpr (ReadsNoMemory<Schedule>)
                if (early.weights) load_weights_ahead(tile, schedule, operands);
        }
        clear_missing_tokens(tile, operands);
        __syncthreads();
        wait_for_previous_kernel();

        // The shuffle in warp_index() keeps descriptors in uniform registers. Several math warpgroups do not need it.
        const bool produces = Tile::MATH_WARPS == 4 ? warp_index() >= Tile::MATH_WARPS : threadIdx.x >= Tile::MATH_THREADS;
        if (produces) {
            if constexpr (Tile::REALLOCATES_REGISTERS) lower_registers_to<Tile::LOADER_REGISTERS>();
            if constexpr (ReadsNoMemory<Schedule>)
                load(tile, schedule, operands, early.weights ? Tile::WEIGHTS_AHEAD : 0);
            else
                load(tile, schedule, operands);
        } else {
            if constexpr (Tile::REALLOCATES_REGISTERS) raise_registers_to<Tile::MATH_REGISTERS>();
            const int first_row = warpgroup_index() * (Tile::ROW_PASSES * WGMMA_ROWS);
            Ring<Tile::STAGES> ring;
            for (Work work; schedule.next(work);) {
                float sums[Tile::PASSES][Tile::SUMS];
                if constexpr (Tile::STRADDLES)
                    multiply(tile, ring, work.end_block - work.first_block, sums, work.weight);
                else
                    multiply(tile, ring, work.end_block - work.first_block, sums);
                store_passes<Tile::COLUMN_PASSES>(d, buffers[reread_thread_index() / 32], work, first_row, sums);
            }
        }
    }
};

}  // namespace zoo
