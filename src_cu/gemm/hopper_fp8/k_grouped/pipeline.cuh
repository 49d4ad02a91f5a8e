// The pipeline of a k_grouped GEMM: persistent CTAs, as in many_tokens.cuh. Included by k_grouped.cu.
#pragma once

#include "common/dependent_launch.cuh"
#include "common/registers.cuh"
#include "common/spill_to_shared.cuh"
#include "gemm/hopper_fp8/k_grouped/mainloop.cuh"
#include "gemm/hopper_fp8/k_grouped/producer.cuh"
#include "gemm/hopper_fp8/k_grouped/schedule.cuh"
#include "gemm/hopper_fp8/k_grouped/store.cuh"

namespace zoo {

// Multiplies a tile, while values that its warps do not need are spilled.
template <class Tile, class Schedule>
__device__ __forceinline__ void multiply_spilling(Tile& tile, Ring<Tile::STAGES>& ring, Schedule& schedule, Work& work,
                                                  float (&sums)[Tile::PASSES][Tile::SUMS]) {
    int numbers[8] = {schedule.index, schedule.group, schedule.end_k, schedule.first_k, work.token, work.weight, work.group, 0};
    spill(tile.alternation.spilled[reread_thread_index() / 32], numbers);
    multiply(tile, ring, work.end_block - work.first_block, sums);
    reload(tile.alternation.spilled[reread_thread_index() / 32], numbers);
    schedule.index = numbers[0], schedule.group = numbers[1], schedule.end_k = numbers[2], schedule.first_k = numbers[3];
    work.token = numbers[4], work.weight = numbers[5], work.group = numbers[6], work.end_token = schedule.M;
}

template <class Tile, class Buffers>
struct KGroupedPipeline {
    Tile tile;
    Buffers buffers[Tile::MATH_WARPS];

    template <TileSchedule Schedule, LoadsKBlocksOf<Tile> Operands, StoresKGroupedSums<Tile, Buffers> Target>
    __device__ __forceinline__ void run(Schedule schedule, const Operands& operands, const Target& d) {
        let_next_kernel_launch();
        if (threadIdx.x == 0) {
            operands.prefetch_maps();
            tile.initialise(any_e8m0(operands));
        }
        __syncthreads();
        wait_for_previous_kernel();

        if (threadIdx.x >= Tile::MATH_THREADS) {
            lower_registers_to<Tile::LOADER_REGISTERS>();
            load(tile, schedule, operands);
        } else {
            raise_registers_to<Tile::MATH_REGISTERS>();
            constexpr int ROWS = Tile::ROW_PASSES * WGMMA_ROWS;  // that a warpgroup has
            const int first_row = Tile::ALTERNATES ? 0 : warpgroup_index() * ROWS;
            Ring<Tile::STAGES> ring;
            for (Work work; schedule.next(work);) {
                float sums[Tile::PASSES][Tile::SUMS];
                if constexpr (Tile::ALTERNATES) {  // no register is left, even for first_row
                    multiply_spilling(tile, ring, schedule, work, sums);
                    const int thread = reread_thread_index();
                    store_passes(d, buffers[thread / 32], work, thread / WARPGROUP * ROWS, sums);
                } else {
                    multiply(tile, ring, work.end_block - work.first_block, sums);
                    store_passes(d, buffers[reread_thread_index() / 32], work, first_row, sums);
                }
            }
        }
    }
};

}  // namespace zoo
