// The pipeline of GEMMs with e4m3 tokens and packed 4-bit weights whose sums are never promoted. Persistent CTAs compute tile after tile while
// producers run ahead. The roles are those of hopper_w4/pipeline.cuh, but a warpgroup may have two weight parts. Included by unpromoted.cu.
//
//     warps 0 to 7     two math warpgroups dequantize and multiply; then they finish and store D
//     warp 8           one lane loads weights and tokens into stages
//     warps 9 to 11    gather tokens, in gather cubins
#pragma once

#include <type_traits>

#include "common/dependent_launch.cuh"
#include "common/nothing.cuh"
#include "common/registers.cuh"
#include "gemm/hopper_w4/epilogue.cuh"
#include "gemm/hopper_w4/operands.cuh"
#include "gemm/hopper_w4/pipeline.cuh"
#include "gemm/hopper_w4/unpromoted/mainloop.cuh"
#include "gemm/hopper_w4/unpromoted/tile.cuh"

namespace zoo {

template <class Tile, class Schedule>
struct UnpromotedPipeline {
    Tile tile;
    StagedOutput<Tile> staged[Tile::PARTS][Tile::MATH_WARPS];
    std::conditional_t<Tile::SPILLS_TO_SHARED, SpilledSchedule<Tile>, Nothing> spilled;

    template <class Result>
    __device__ __forceinline__ void run(const auto& make_schedule, const FourBitOperands<Tile>& operands,
                                        const GatheredRows& rows, const Result& d) {
        Schedule schedule = make_schedule();
        let_next_kernel_launch();
        tile.initialise();
        if (!Tile::GATHERS && threadIdx.x == 0) prefetch(operands.a);
        operands.clear_missing_tokens(tile);
        __syncthreads();
        wait_for_previous_kernel();

        if (warp_index() >= Tile::MATH_WARPS) {
            produce(tile, schedule, operands, rows);
            return;
        }

        raise_registers_to<Tile::MATH_REGISTERS>();
        Ring<Tile::STAGES> ring;
        const bool is_basic = d.is_basic();
        auto as_basic = [&](const auto& what) {
            Result own = d;
            asm volatile("" : "+r"(own.columns));  // keeps what is computed from it out of registers during the loop over K
            is_basic ? what(own.basic()) : what(own);
        };
        for (Work work; schedule.next(work);) {
            const UnpromotedMainloop<Tile> mainloop(operands, work);
            auto of_part = [&](int part) {
                Work of = work;
                of.weight += part * Tile::WARPGROUPS * CHUNK_ROWS;
                return of;
            };
            as_basic([&](const Result& d) {
#pragma unroll
                for (int p = 0; p < Tile::PARTS; p++) staged[p][reread_thread_index() / 32].prefetch_factors(d, of_part(p));
            });
            float sums[Tile::PARTS][Tile::SUMS];
            if constexpr (Tile::SPILLS_TO_SHARED) spilled.spill(schedule, work);
            mainloop.multiply(tile, ring, work, sums);
            as_basic([&](const Result& d) {
#pragma unroll
                for (int p = 0; p < Tile::PARTS; p++) {
                    if constexpr (Tile::SPILLS_TO_SHARED) spilled.reload(schedule, work);  // again for each part: saves registers
                    finish_and_store<Tile>(d.of(work.group), staged[p][reread_thread_index() / 32], of_part(p), sums[p]);
                }
            });
        }
    }
};

}  // namespace zoo
