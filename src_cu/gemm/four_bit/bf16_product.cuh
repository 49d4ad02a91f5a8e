// A product of bf16 and 4-bit weights put together: as product.cuh, with parts.
#pragma once

#include <cstdint>
#include <type_traits>

#include "common/cluster.cuh"
#include "common/dependent_launch.cuh"
#include "common/registers.cuh"
#include "gemm/four_bit/bf16_multiply.cuh"
#include "gemm/four_bit/bf16_stored.cuh"
#include "gemm/four_bit/finish.cuh"
#include "gemm/four_bit/load.cuh"
#include "gemm/four_bit/product.cuh"
#include "gemm/schedule/tile_order.cuh"

namespace zoo {

template <class Tile, class Order, int SPLITS>
struct Bf16Product {
    Tile tile;
    StagedByWarps<Tile, SPLITS> staged;
    PushedByCluster<Tile, SPLITS> pushed;
    std::conditional_t<Tile::PARKS, Parked<Tile>, Nothing> parked;

    template <class Operands, class Result>
    __device__ __forceinline__ void run(Order order, const Operands& operands, const IndexedRows& rows, const Result& d) {
        let_next_kernel_launch();
        tile.initialise(operands);
        if (threadIdx.x == 0) {
            if constexpr (!Tile::GATHERS) prefetch(operands.a);
            if constexpr (Tile::STORED) prefetch(operands.stored);
            if constexpr (SPLITS > 1) pushed.initialise();
        }
        operands.clear_missing_tokens(tile);
        __syncthreads();
        if constexpr (SPLITS > 1) arrive_at_cluster();  // when all have, they may be sent to
        wait_for_previous_kernel();

        if (warp_index() >= Tile::MATH_WARPS) {
            if constexpr (Tile::HUNGRY) keep_registers<Tile::LOADER_REGISTERS>();
            const int thread = threadIdx.x - Tile::MATH_THREADS;
            if (thread < 32) {
                if (OfWarps<Order> || thread == 0) load_operands(tile, order, operands, thread);
            } else if (thread - 32 < Tile::GATHERING_THREADS) {
                if constexpr (Tile::MAY_GATHER)
                    if (!operands.gathers()) return;
                if constexpr (Tile::GATHERING_THREADS > 0) gather_tokens(tile, order, rows, operands.scales, thread - 32);
            }
            __syncwarp();
            if constexpr (SPLITS > 1) wait_for_cluster();
        } else {
            if constexpr (Tile::HUNGRY) take_registers<Tile::MATH_REGISTERS>();
            if constexpr (SPLITS > 1) wait_for_cluster();
            Ring<Tile::STAGES> ring;
            for (Work work; order.next(work);) {
                const int heights = operands.b.tiles - work.weight / CHUNK_ROWS - warpgroup_index();
                const int chunks = min(operands.b.chunks, work.end_block * Tile::CHUNKS) - work.first_block * Tile::CHUNKS;
                float sums[Tile::PARTS][Tile::SUMS];
                if constexpr (SPLITS == 1)
                    staged[thread_index_anew() / 32].ask_for_factors(d, work);
                else
                    pushed.ask_for_factors(d, work, threadIdx.x);
                if constexpr (Tile::PARKS) parked.park(order, work);
                const int exist = tiles_of(max(heights, 0), Tile::WARPGROUPS);
                if constexpr (Tile::STORED) {
                    StoredHalves<Tile> halves(tile, operands.stored_scales, work);
                    multiply_bf16(tile, ring, max(chunks, 0), exist, sums, halves);
                } else {
                    PackedChunks<Tile> packed(tile);
                    multiply_bf16(tile, ring, max(chunks, 0), exist, sums, packed);
                }
                if constexpr (Tile::PARKS) parked.fetch(order, work);
                if constexpr (SPLITS > 1) {
                    pushed.push(sums[0]);
                } else {
                    const auto mine = d.of(work.group);
#pragma unroll
                    for (int p = 0; p < Tile::PARTS; p++) {
                        if (p > 0) staged[thread_index_anew() / 32].ask_for_factors(d, work);
                        finish_and_store<Tile>(mine, staged[thread_index_anew() / 32], work, sums[p]);
                        work.weight += Tile::WARPGROUPS * CHUNK_ROWS;
                    }
                }
            }
        }
        if constexpr (SPLITS > 1) pushed.add_up_and_store(d, order.work);
    }
};

}  // namespace zoo
