// The pipeline of GEMMs with bf16 tokens and 4-bit weights. The roles are those of hopper_w4/pipeline.cuh, but a warpgroup may have several weight
// parts. Included by bf16.cu and bf16_stored.cu.
#pragma once

#include <type_traits>

#include "common/cluster.cuh"
#include "common/registers.cuh"
#include "gemm/hopper_w4/bf16/mainloop.cuh"
#include "gemm/hopper_w4/bf16/weights.cuh"
#include "gemm/hopper_w4/epilogue.cuh"
#include "gemm/hopper_w4/operands.cuh"
#include "gemm/hopper_w4/pipeline.cuh"
#include "gemm/schedule/tile_schedule.cuh"

namespace zoo {

template <class Tile, class Schedule, int SPLITS>
struct Bf16Pipeline : PipelineMemory<Tile, SPLITS> {
    using Memory = PipelineMemory<Tile, SPLITS>;
    using Memory::tile, Memory::staged, Memory::pushed, Memory::spilled;

    template <class Operands, class Result>
    __device__ __forceinline__ void run(Schedule schedule, const Operands& operands, const GatheredRows& rows, const Result& d) {
        Memory::start(operands);
        if (warp_index() >= Tile::MATH_WARPS) {
            produce(tile, schedule, operands, rows);
            __syncwarp();
            if constexpr (SPLITS > 1) wait_for_cluster();
        } else {
            if constexpr (Tile::REALLOCATES_REGISTERS) raise_registers_to<Tile::MATH_REGISTERS>();
            if constexpr (SPLITS > 1) wait_for_cluster();
            Ring<Tile::STAGES> ring;
            for (Work work; schedule.next(work);) {
                const int heights = operands.b.weight_parts - work.weight / CHUNK_ROWS - warpgroup_index();
                const int chunks = min(operands.b.chunks, work.end_block * Tile::CHUNKS) - work.first_block * Tile::CHUNKS;
                float sums[Tile::PARTS][Tile::SUMS];
                if constexpr (SPLITS == 1)
                    staged[reread_thread_index() / 32].prefetch_factors(d, work);
                else
                    pushed.prefetch_factors(d, work, threadIdx.x);
                if constexpr (Tile::SPILLS_TO_SHARED) spilled.spill(schedule, work);
                const int exist = ceil_div(max(heights, 0), Tile::WARPGROUPS);
                if constexpr (Tile::STORED) {
                    StoredBf16Weights<Tile> halves(tile, operands.stored_scales, work);
                    multiply_bf16(tile, ring, max(chunks, 0), exist, sums, halves);
                } else {
                    PackedBf16Weights<Tile> packed(tile);
                    multiply_bf16(tile, ring, max(chunks, 0), exist, sums, packed);
                }
                if constexpr (Tile::SPILLS_TO_SHARED) spilled.reload(schedule, work);
                if constexpr (SPLITS > 1) {
                    pushed.push(sums[0]);
                } else {
                    const auto mine = d.of(work.group);
#pragma unroll
                    for (int p = 0; p < Tile::PARTS; p++) {
                        if (p > 0) staged[reread_thread_index() / 32].prefetch_factors(d, work);
                        finish_and_store<Tile>(mine, staged[reread_thread_index() / 32], work, sums[p]);
                        work.weight += Tile::WARPGROUPS * CHUNK_ROWS;
                    }
                }
            }
        }
        if constexpr (SPLITS > 1) pushed.reduce_and_store(d, schedule.work);
    }
};

}  // namespace zoo
