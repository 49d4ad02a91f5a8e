// Few tokens: weights are the rows of wgmma, so that 8 tokens cost 8 columns.
// The first two may share their tokens with the tiles next to theirs (shared_tokens.cuh). Three ways:
//
//     FewTokens         a tile for each cluster, whose CTAs share K: enough of them to keep all memory busy where tiles are few.
//                       They lay their sums down where the stages were, meet, and read each other's
//     FewTokensPushed   the same, but sums go straight to who stores them: faster, where there is room beside the stages
//     FewTokensInTurn   persistent CTAs, where tiles are many: the next tile's weights come while this one is stored
//
// A call takes 2.2 us from the end of the kernel ahead to its own, however little it multiplies, so what may come before that
// kernel's end counts: weights and tokens to the L2 cache, and weights that are constants into the ring of stages.
#pragma once

#include <cstdint>

#include "common/cluster.cuh"
#include "common/dependent_launch.cuh"
#include "common/named_barrier.cuh"
#include "common/registers.cuh"
#include "gemm/mainloop/fp8b128_mainloop.cuh"
#include "gemm/epilogue/pushed_sums.cuh"
#include "gemm/load/shared_tokens.cuh"
#include "gemm/epilogue/store_reduced.cuh"
#include "gemm/schedule/tile_order.cuh"

namespace zoo {

// A CTA has one tile, or a share of one, which its order says at once, as order.work.
template <class Way>
concept OfOneTile = requires { requires Way::OF_ONE_TILE; };

template <class Tile>
struct FewTokens {
    static constexpr bool OF_ONE_TILE = true;
    static constexpr int PREFETCHED = 3;  // blocks of weights: more of them cost more than they gain
    static constexpr bool SHARES = Tile::SHARERS > 1;
    static_assert(!SHARES || Tile::TOGETHER == 1, "sums are read in the CTA of a split's rank");

    Tile tile;

    template <TileOrder Order, OperandsOf<Tile> Operands, StoresLaidSumsOf<Tile> Target>
    __device__ __forceinline__ void run(Order order, const Operands& operands, const Target& d, Early early = {}) {
        using Laid = LaidSums<Tile>;
        static_assert(sizeof(Laid) <= sizeof(tile.tokens) + sizeof(tile.weights), "lies where the stages were");
        Laid& laid = reinterpret_cast<Laid&>(tile);
        const Work work = order.work;

        let_next_kernel_launch();
        if (threadIdx.x == 0) {
            if (!early.weights) operands.prefetch_weights(work, PREFETCHED);
            operands.prefetch_maps();
            tile.initialise();
            if (early.weights) load_weights_ahead(tile, order, operands);
        }
        if (early.tokens) prefetch_tokens<Tile>(order, operands, work);
        clear_missing_tokens(tile, operands);
        __syncthreads();
        if constexpr (SHARES) arrive_at_cluster();  // when all have, they may be sent to
        wait_for_previous_kernel();
        if constexpr (SHARES) wait_for_cluster();

        if (threadIdx.x >= Tile::MATH_THREADS) {
            if constexpr (Tile::HUNGRY) keep_registers<Tile::LOADER_REGISTERS>();
            load(tile, order, operands, early.weights ? Tile::WEIGHTS_AHEAD : 0);
        } else {
            if constexpr (Tile::HUNGRY) take_registers<Tile::MATH_REGISTERS>();
            Ring<Tile::STAGES> ring;
            float sums[Tile::WAVES][Tile::SUMS];
            multiply(tile, ring, work.end_block - work.first_block, sums);
            synchronise_threads(1, Tile::MATH_THREADS);  // all have multiplied: the stages are free
            laid.lay(sums);
        }
        __syncwarp();
        if constexpr (Tile::TOGETHER > 1)
            synchronise_cluster();
        else
            __syncthreads();
        add_up_and_store<Tile::TOGETHER, Tile::THREADS>(laid, d, work);
        if constexpr (Tile::TOGETHER > 1) meet_cluster();  // nobody ends while its sums are read
        if constexpr (SHARES) tile.stay_until_given_back(work.end_block - work.first_block);
    }
};

template <class Tile>
struct FewTokensPushed {
    static constexpr bool OF_ONE_TILE = true;
    static constexpr int PREFETCHED = 3;
    static constexpr bool SHARES = Tile::SHARERS > 1;

    Tile tile;
    PushedSums<Tile, Tile::TOGETHER> pushed;

    template <TileOrder Order, OperandsOf<Tile> Operands, StoresEights Target>
    __device__ __forceinline__ void run(Order order, const Operands& operands, const Target& d, Early early = {}) {
        const Work work = order.work;

        let_next_kernel_launch();
        if (threadIdx.x == 0) {
            if (!early.weights) operands.prefetch_weights(work, PREFETCHED);
            operands.prefetch_maps();
            tile.initialise();
            pushed.initialise();
            if (early.weights) load_weights_ahead(tile, order, operands);
        }
        if (early.tokens) prefetch_tokens<Tile>(order, operands, work);
        clear_missing_tokens(tile, operands);
        __syncthreads();
        arrive_at_cluster();  // when all have, they may be sent to
        wait_for_previous_kernel();

        if (threadIdx.x >= Tile::MATH_THREADS) {
            if constexpr (Tile::HUNGRY) keep_registers<Tile::LOADER_REGISTERS>();
            if constexpr (SHARES) wait_for_cluster();
            load(tile, order, operands, early.weights ? Tile::WEIGHTS_AHEAD : 0);
            __syncwarp();
            if constexpr (!SHARES) wait_for_cluster();
        } else {
            if constexpr (Tile::HUNGRY) take_registers<Tile::MATH_REGISTERS>();
            wait_for_cluster();
            Ring<Tile::STAGES> ring;
            float sums[Tile::WAVES][Tile::SUMS];
            multiply(tile, ring, work.end_block - work.first_block, sums);
            pushed.push(sums[0]);
        }
        pushed.template add_up_and_store<Tile::THREADS / 32>(d, work);
        if constexpr (SHARES) tile.stay_until_given_back(work.end_block - work.first_block);
    }
};

template <class Tile>
struct FewTokensInTurn {
    Tile tile;
    LaidSums<Tile> laid;

    static constexpr int PREFETCHED = 3;  // blocks of the first tile's weights

    // What the order reads from global memory it reads in next(), after the kernel before has ended.
    template <TileOrder Order, OperandsOf<Tile> Operands, StoresLaidSumsOf<Tile> Target>
    __device__ __forceinline__ void run(Order order, const Operands& operands, const Target& d, Early early = {}) {
        let_next_kernel_launch();
        if (threadIdx.x == 0) {
            if constexpr (ReadsNothing<Order>) {
                Order first = order;
                if (Work work; !early.weights && first.next(work)) operands.prefetch_weights(work, PREFETCHED);
            }
            operands.prefetch_maps();
            tile.initialise();
            if constexpr (ReadsNothing<Order>)
                if (early.weights) load_weights_ahead(tile, order, operands);
        }
        if constexpr (ReadsNothing<Order>) {
            Order first = order;
            if (Work work; early.tokens && first.next(work)) prefetch_tokens<Tile>(order, operands, work);
        }
        clear_missing_tokens(tile, operands);
        __syncthreads();
        wait_for_previous_kernel();

        if (warp_index() >= Tile::MATH_WARPS) {
            if constexpr (Tile::HUNGRY) keep_registers<Tile::LOADER_REGISTERS>();
            load(tile, order, operands, early.weights ? Tile::WEIGHTS_AHEAD : 0);
        } else {
            if constexpr (Tile::HUNGRY) take_registers<Tile::MATH_REGISTERS>();
            Ring<Tile::STAGES> ring;
            for (Work work; order.next(work);) {
                float sums[Tile::WAVES][Tile::SUMS];
                multiply(tile, ring, work.end_block - work.first_block, sums);
                synchronise_threads(1, Tile::MATH_THREADS);  // the tile before is stored
                laid.lay(sums);
                synchronise_threads(1, Tile::MATH_THREADS);
                add_up_and_store<1, Tile::MATH_THREADS>(laid, d, work);
            }
        }
    }
};

}  // namespace zoo
