// The pipeline of GEMMs with FP8 tokens whose weights are dequantized to registers. Persistent CTAs compute tile after tile while producers run ahead.
// With SPLITS > 1, the CTAs of a cluster split K where tiles do not fill the GPU. Included by packed.cu and stored.cu, which add mainloop.cuh. The
// bf16 and unpromoted pipelines use its parts.
//
//     warps 0 to 7     two math warpgroups dequantize, multiply and promote; then they finish and store D, or send sums to the cluster's CTAs
//     warp 8           one lane loads weights and tokens into stages
//     warps 9 to 11    gather tokens or copy scale128, if the kernel does either
#pragma once

#include <cstdint>
#include <type_traits>

#include "common/async_copy.cuh"
#include "common/cluster.cuh"
#include "common/dependent_launch.cuh"
#include "common/nothing.cuh"
#include "common/registers.cuh"
#include "gemm/epilogue/pushed_sums.cuh"
#include "gemm/hopper_w4/epilogue.cuh"
#include "gemm/hopper_w4/operands.cuh"
#include "gemm/schedule/grouped_schedule.cuh"

namespace zoo {

// Calls each() for every integer of a schedule or a tile that the loop over K does not need.
template <class Tile, int BAND, class Rows, class Each>
__device__ __forceinline__ void for_each_integer(DenseSchedule<Tile, BAND, Rows>& schedule, const Each& each) {
    each(schedule.cut.M), each(schedule.rows), each(schedule.columns), each(schedule.blocks), each(schedule.index);
    if constexpr (requires { schedule.cut.fours; }) each(schedule.cut.fours);
}
template <class Tile, int BAND, class Groups, class Each>
__device__ __forceinline__ void for_each_integer(GroupedSchedule<Tile, BAND, Groups>& schedule, const Each& each) {
    each(schedule.columns), each(schedule.blocks), each(schedule.index), each(schedule.first_group), each(schedule.end_index);
    each(schedule.begin), each(schedule.end), each(schedule.own_end_index);
}
template <class Each>
__device__ __forceinline__ void for_each_integer(Work& work, const Each& each) {
    each(work.token), each(work.weight), each(work.end_token), each(work.group);
}

// Calls each() for the integers that loop conditions read. They are uniform in a warp.
template <class Schedule, class Each>
__device__ __forceinline__ void for_each_loop_integer(Schedule& schedule, const Each& each) {
    each(schedule.blocks), each(schedule.index);
    if constexpr (requires { schedule.end_index; }) each(schedule.first_group), each(schedule.end_index);
}

// Spills the schedule and the tile of each math thread to shared memory during the loop over K, one row for each integer. Assembly is needed:
// otherwise the compiler keeps the integers in registers.
template <class Tile>
struct SpilledSchedule {
    static constexpr int NUMBERS = 12;
    int numbers[NUMBERS][Tile::MATH_THREADS];

    template <class Schedule>
    __device__ __forceinline__ void spill(Schedule& schedule, Work& work) {
        uint32_t at = shared_address(&numbers[0][reread_thread_index()]);
        auto store = [&](int number) {
            asm volatile("st.shared.u32 [%0], %1;" ::"r"(at), "r"(number) : "memory");
            at += sizeof(numbers[0]);
        };
        for_each_integer(schedule, store);
        for_each_integer(work, store);
    }
    template <class Schedule>
    __device__ __forceinline__ void reload(Schedule& schedule, Work& work) const {
        uint32_t at = shared_address(&numbers[0][reread_thread_index()]);
        auto load = [&](int& number) {
            asm volatile("ld.shared.u32 %0, [%1];" : "=r"(number) : "r"(at) : "memory");
            at += sizeof(numbers[0]);
        };
        for_each_integer(schedule, load);
        for_each_integer(work, load);
        for_each_loop_integer(schedule, [](int& number) { number = same_in_all_lanes(number); });
    }
};

// The epilogue of a cluster that splits K: sums go to the CTA that stores them (gemm/epilogue/pushed_sums.cuh), and so do its factors.
template <class Tile, int SPLITS>
struct SplitKEpilogue : PushedSums<Tile, SPLITS> {
    EpilogueFactors<Tile::TOKENS, Tile::WEIGHTS> factors;

    // Called by one thread.
    __device__ __forceinline__ void initialise() { PushedSums<Tile, SPLITS>::initialise(Tile::MATH_THREADS); }

    // Called by the math threads before the loop over K. `arrived`, the barrier of the sums, also counts these copies.
    __device__ __forceinline__ void prefetch_factors(const auto& d, const Work& work, int thread) {
        factors.prefetch_token_factors(d, work, thread, Tile::MATH_THREADS);
        factors.prefetch_weight_factors(d, work.weight, thread);
        arrive_after_copies(&this->arrived);
    }

    __device__ __forceinline__ void reduce_and_store(const auto& d, const Work& work) {
        PushedSums<Tile, SPLITS>::template reduce_and_store<Tile::THREADS / 32>(factors.in(d, work, work.weight), work);
    }
};

template <class Tile, int SPLITS>
using OptionalSplitKEpilogue = std::conditional_t<(SPLITS > 1), SplitKEpilogue<Tile, (SPLITS > 1 ? SPLITS : 2)>, Nothing>;
template <class Tile, int SPLITS>
using OptionalStagedOutput = std::conditional_t<SPLITS == 1, StagedOutput<Tile>[Tile::MATH_WARPS], Nothing>;

// The shared memory of a CTA, and what all threads do before the roles begin.
template <class Tile, int SPLITS>
struct PipelineMemory {
    Tile tile;
    OptionalStagedOutput<Tile, SPLITS> staged;
    OptionalSplitKEpilogue<Tile, SPLITS> pushed;
    std::conditional_t<Tile::SPILLS_TO_SHARED, SpilledSchedule<Tile>, Nothing> spilled;

    __device__ __forceinline__ void start(const auto& operands) {
        let_next_kernel_launch();
        tile.initialise();
        if (threadIdx.x == 0) {
            if constexpr (!Tile::GATHERS) prefetch(operands.a);
            if constexpr (Tile::STORED) prefetch(operands.stored);
            if constexpr (SPLITS > 1) pushed.initialise();
        }
        operands.clear_missing_tokens(tile);
        __syncthreads();
        if constexpr (SPLITS > 1) arrive_at_cluster();  // CTAs may send sums after all have initialised their barriers
        wait_for_previous_kernel();
    }
};

// Mainloop: multiplies a tile's tokens along K, as Fp8Mainloop of mainloop.cuh does.
template <class Tile, class Schedule, int SPLITS, class Mainloop>
struct FourBitPipeline : PipelineMemory<Tile, SPLITS> {
    using Memory = PipelineMemory<Tile, SPLITS>;
    using Memory::tile, Memory::staged, Memory::pushed, Memory::spilled;

    template <class Operands, class Result>
    __device__ __forceinline__ void run(const auto& make_schedule, const Operands& operands, const GatheredRows& rows,
                                        const Result& d) {
        Schedule schedule = make_schedule();
        Memory::start(operands);
        if (warp_index() >= Tile::MATH_WARPS) {
            produce(tile, schedule, operands, rows);
            __syncwarp();
            if constexpr (SPLITS > 1) wait_for_cluster();
        } else {
            if constexpr (Tile::REALLOCATES_REGISTERS) raise_registers_to<Tile::MATH_REGISTERS>();
            if constexpr (SPLITS > 1) wait_for_cluster();
            // Prevents ptxas from keeping the number of K blocks twice. Stored weights of eight tokens with scale128 would spill otherwise.
            if constexpr (Tile::STORED && Tile::SCALED) asm volatile("" : "+r"(schedule.blocks));
            Ring<Tile::STAGES> ring;
            const bool is_basic = Tile::HAS_BASIC_EPILOGUE && d.is_basic();
            auto as_basic = [&](const auto& what) { is_basic ? what(d.basic()) : what(d); };
            for (Work work; schedule.next(work);) {
                const Mainloop mainloop(operands, work);
                float sums[1][Tile::SUMS];
                if constexpr (SPLITS == 1)
                    as_basic([&](const Result& d) { staged[reread_thread_index() / 32].prefetch_factors(d, work); });
                else
                    pushed.prefetch_factors(d, work, threadIdx.x);
                if constexpr (Tile::SPILLS_TO_SHARED) spilled.spill(schedule, work);
                mainloop.multiply(tile, ring, operands, work, sums);
                if constexpr (Tile::SPILLS_TO_SHARED) spilled.reload(schedule, work);
                if constexpr (SPLITS > 1)
                    pushed.push(sums[0]);
                else
                    as_basic([&](const Result& d) {
                        finish_and_store<Tile>(d.of(work.group), staged[reread_thread_index() / 32], work, sums[0]);
                    });
            }
        }
        if constexpr (SPLITS > 1) pushed.reduce_and_store(d, schedule.work);
    }
};

}  // namespace zoo
