// Few tokens: weights are the rows of wgmma, so that 8 tokens cost 8 columns; a tile of 128 tokens may have them as rows
// and share only the splits of K. Two ways:
//
//     FewTokens         a tile for each cluster, whose CTAs share K and add up through distributed shared memory: enough of
//                       them to keep all memory busy where tiles are few
//     FewTokensInTurn   persistent CTAs, where tiles are many: the next tile's weights come while this one is stored
#pragma once

#include <cstdint>

#include "common/cluster.cuh"
#include "common/dependent_launch.cuh"
#include "common/named_barrier.cuh"
#include "common/registers.cuh"
#include "gemm/fp8b128_mainloop.cuh"
#include "gemm/store_reduced.cuh"
#include "gemm/tile_order.cuh"

namespace zoo {

template <class Tile, int SPLITS>
struct FewTokens {
    static constexpr int PREFETCHED = 3;  // blocks of weights: more of them cost more than they gain

    Tile tile;

    template <class Order, class Operands, class Target>
    __device__ __forceinline__ void run(Order order, const Operands& operands, const Target& d) {
        using Laid = LaidSums<Tile>;
        static_assert(sizeof(Laid) <= sizeof(tile.tokens) + sizeof(tile.weights), "lies where the stages were");
        Laid& laid = reinterpret_cast<Laid&>(tile);
        const Work work = order.work;

        let_next_kernel_launch();
        if (threadIdx.x == 0) {
            operands.prefetch_weights(work, PREFETCHED);
            operands.prefetch_maps();
            tile.initialise();
        }
        __syncthreads();
        wait_for_previous_kernel();

        if (threadIdx.x >= Tile::MATH_THREADS) {
            if constexpr (Tile::HUNGRY) keep_registers<Tile::LOADER_REGISTERS>();
            load(tile, order, operands);
        } else {
            if constexpr (Tile::HUNGRY) take_registers<Tile::MATH_REGISTERS>();
            Ring<Tile::STAGES> ring;
            float sums[Tile::WAVES][Tile::SUMS];
            multiply(tile, ring, work.end_block - work.first_block, sums);
            synchronise_threads(1, Tile::MATH_THREADS);  // all have multiplied: the stages are free
            laid.lay(sums);
        }
        __syncwarp();
        if constexpr (SPLITS > 1)
            synchronise_cluster();
        else
            __syncthreads();
        add_up_and_store<SPLITS, Tile::THREADS>(laid, d, work);
        if constexpr (SPLITS > 1) meet_cluster();  // nobody ends while its sums are read
    }
};

template <class Tile>
struct FewTokensInTurn {
    Tile tile;
    LaidSums<Tile> laid;

    static constexpr int PREFETCHED = 3;  // blocks of the first tile's weights

    // What the order reads from global memory it reads in next(), after the kernel before has ended.
    template <class Order, class Operands, class Target>
    __device__ __forceinline__ void run(Order order, const Operands& operands, const Target& d) {
        let_next_kernel_launch();
        if (threadIdx.x == 0) {
            if constexpr (requires { requires Order::READS_NOTHING; }) {
                Order first = order;
                if (Work work; first.next(work)) operands.prefetch_weights(work, PREFETCHED);
            }
            operands.prefetch_maps();
            tile.initialise();
        }
        __syncthreads();
        wait_for_previous_kernel();

        if (threadIdx.x >= Tile::MATH_THREADS) {
            if constexpr (Tile::HUNGRY) keep_registers<Tile::LOADER_REGISTERS>();
            load(tile, order, operands);
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
