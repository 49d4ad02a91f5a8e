// The pipelines of few tokens: weights are the rows of wgmma, so that 8 tokens cost 8 columns.
//
//     FewTokens             a tile for each cluster, whose CTAs split K: enough CTAs to keep all memory busy where tiles are few.
//                           CTAs write their sums where the stages were, synchronise, and read each other's sums
//     FewTokensPersistent   persistent CTAs, where tiles are many: the next tile's weights are loaded while a tile is stored
//
// FewTokens may multicast tokens to neighbouring tiles (multicast_tokens.cuh).
//
// The smallest call ends 2.2 us after the previous kernel (H200). So these pipelines load early, before the previous kernel has ended: weights
// and tokens to L2, and constant weights to the ring of stages.
#pragma once

#include "common/cluster.cuh"
#include "common/dependent_launch.cuh"
#include "common/named_barrier.cuh"
#include "common/registers.cuh"
#include "gemm/hopper_fp8/mainloop.cuh"
#include "gemm/hopper_fp8/producer.cuh"
#include "gemm/hopper_fp8/store_reduced.cuh"
#include "gemm/schedule/tile_schedule.cuh"

namespace zoo {

// A CTA has one tile, or a share of one, which is schedule.work.
template <class Pipeline>
concept OneTilePerCluster = requires { requires Pipeline::ONE_TILE_PER_CLUSTER; };

constexpr int PREFETCHED = 3;  // K blocks of weights: more cost more than they gain

// A thread initialises the barriers, and loads that need not wait for the previous kernel are issued. All threads call this.
template <class Tile, class Schedule, class Operands>
__device__ __forceinline__ void begin_tile(Tile& tile, const Schedule& schedule, const Operands& operands, EarlyLoads early,
                                           const auto& initialise_more) {
    const Work work = schedule.work;
    let_next_kernel_launch();
    if (threadIdx.x == 0) {
        if (!early.weights) operands.prefetch_weights(work, PREFETCHED);
        operands.prefetch_maps();
        tile.initialise();
        initialise_more();
        if (early.weights) load_weights_ahead(tile, schedule, operands);
    }
    if (early.tokens) prefetch_tokens<Tile>(schedule, operands, work);
    clear_missing_tokens(tile, operands);
    __syncthreads();
}

template <class Tile>
struct FewTokens {
    static constexpr bool ONE_TILE_PER_CLUSTER = true;
    static constexpr bool SHARES = Tile::SHARERS > 1;
    static_assert(!SHARES || Tile::CTAS_PER_RESULT == 1, "SumsInShared takes the rank of a CTA for its split");

    Tile tile;

    template <TileSchedule Schedule, OperandsOf<Tile> Operands, StoresSumsInShared<Tile> Target>
    __device__ __forceinline__ void run(Schedule schedule, const Operands& operands, const Target& d, EarlyLoads early = {}) {
        using Sums = SumsInShared<Tile>;
        static_assert(sizeof(Sums) <= sizeof(tile.tokens) + sizeof(tile.weights), "sums replace the stages");
        Sums& shared_sums = reinterpret_cast<Sums&>(tile);
        const Work work = schedule.work;

        begin_tile(tile, schedule, operands, early, [] {});
        if constexpr (SHARES) arrive_at_cluster();  // CTAs receive tokens after all have arrived
        wait_for_previous_kernel();
        if constexpr (SHARES) wait_for_cluster();

        if (threadIdx.x >= Tile::MATH_THREADS) {
            if constexpr (Tile::REALLOCATES_REGISTERS) lower_registers_to<Tile::LOADER_REGISTERS>();
            load(tile, schedule, operands, early.weights ? Tile::WEIGHTS_AHEAD : 0);
        } else {
            if constexpr (Tile::REALLOCATES_REGISTERS) raise_registers_to<Tile::MATH_REGISTERS>();
            Ring<Tile::STAGES> ring;
            float sums[Tile::PASSES][Tile::SUMS];
            multiply(tile, ring, work.end_block - work.first_block, sums);
            synchronise_threads(1, Tile::MATH_THREADS);  // all math warps have multiplied: the stages are free
            shared_sums.write(sums);
        }
        __syncwarp();
        if constexpr (Tile::CTAS_PER_RESULT > 1)
            synchronise_cluster();
        else
            __syncthreads();
        reduce_and_store<Tile::CTAS_PER_RESULT, Tile::THREADS>(shared_sums, d, work);
        if constexpr (Tile::CTAS_PER_RESULT > 1) synchronise_cluster_relaxed();  // no CTA exits while its sums are read
        if constexpr (SHARES) tile.wait_until_all_released(work.end_block - work.first_block);
    }
};

template <class Tile>
struct FewTokensPersistent {
    Tile tile;
    SumsInShared<Tile> shared_sums;

    // A schedule reads global memory only in next(), so next() runs after the previous kernel has ended. Schedules with READS_NO_MEMORY need
    // not wait.
    template <TileSchedule Schedule, OperandsOf<Tile> Operands, StoresSumsInShared<Tile> Target>
    __device__ __forceinline__ void run(Schedule schedule, const Operands& operands, const Target& d, EarlyLoads early = {}) {
        let_next_kernel_launch();
        if (threadIdx.x == 0) {
            if constexpr (ReadsNoMemory<Schedule>) {
                Schedule first = schedule;
                if (Work work; !early.weights && first.next(work)) operands.prefetch_weights(work, PREFETCHED);
            }
            operands.prefetch_maps();
            tile.initialise();
            if constexpr (ReadsNoMemory<Schedule>)
                if (early.weights) load_weights_ahead(tile, schedule, operands);
        }
        if constexpr (ReadsNoMemory<Schedule>) {
            Schedule first = schedule;
            if (Work work; early.tokens && first.next(work)) prefetch_tokens<Tile>(schedule, operands, work);
        }
        clear_missing_tokens(tile, operands);
        __syncthreads();
        wait_for_previous_kernel();

        if (warp_index() >= Tile::MATH_WARPS) {
            if constexpr (Tile::REALLOCATES_REGISTERS) lower_registers_to<Tile::LOADER_REGISTERS>();
            load(tile, schedule, operands, early.weights ? Tile::WEIGHTS_AHEAD : 0);
        } else {
            if constexpr (Tile::REALLOCATES_REGISTERS) raise_registers_to<Tile::MATH_REGISTERS>();
            Ring<Tile::STAGES> ring;
            for (Work work; schedule.next(work);) {
                float sums[Tile::PASSES][Tile::SUMS];
                multiply(tile, ring, work.end_block - work.first_block, sums);
                synchronise_threads(1, Tile::MATH_THREADS);  // the previous tile is stored
                shared_sums.write(sums);
                synchronise_threads(1, Tile::MATH_THREADS);
                reduce_and_store<1, Tile::MATH_THREADS>(shared_sums, d, work);
            }
        }
    }
};

}  // namespace zoo
