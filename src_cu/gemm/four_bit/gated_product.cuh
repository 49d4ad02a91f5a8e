// A product with gates and ups put together, of FP8 or bf16 tokens: persistent CTAs as in product.cuh, which take tile after tile
// while copies run ahead. What becomes of h the launch says.
#pragma once

#include <cstdint>
#include <type_traits>

#include "common/dependent_launch.cuh"
#include "common/registers.cuh"
#include "gemm/four_bit/bf16_multiply.cuh"
#include "gemm/four_bit/bf16_stored.cuh"
#include "gemm/four_bit/gated_order.cuh"
#include "gemm/four_bit/gated_store.cuh"
#include "gemm/four_bit/gated_tile.cuh"
#include "gemm/four_bit/halves.cuh"
#include "gemm/four_bit/load.cuh"
#include "gemm/four_bit/multiply.cuh"
#include "gemm/four_bit/width.cuh"

namespace zoo {

// A tile's sums, of this warpgroup's 64 rows: 32 gates and their ups.
template <class Tile>
__device__ __forceinline__ void multiply_tile(Tile& tile, Ring<Tile::STAGES>& ring, const auto& operands, const Work& work,
                                              float (&sums)[1][Tile::SUMS]) {
    const PackedMatrices& b = operands.b;
    const bool exists = work.weight / CHUNK_ROWS + warpgroup_index() < b.tiles;
    if constexpr (Tile::OF_BF16 && Tile::STORED) {
        StoredHalves<Tile> halves(tile, operands.stored_scales, work);
        multiply_bf16(tile, ring, b.chunks, int(exists), sums, halves);
    } else if constexpr (Tile::OF_BF16) {
        PackedChunks<Tile> packed(tile);
        multiply_bf16(tile, ring, b.chunks, int(exists), sums, packed);
    } else {
        multiply_as_wide_as<Tile>(work.end_token - work.token, sums[0], [&]<int TURNS, int COLUMNS>(auto& some_sums) {
            auto begin = [&](auto& block) {
                if constexpr (Tile::STORED) block.begin(operands.stored_scales, work);
            };
            if constexpr (Tile::SCALED) {
                multiply_by_halves<TURNS, COLUMNS>(tile, ring, work.end_block, exists ? b.chunks : 0, some_sums, begin);
            } else {
                BlockOf<Tile> block;
                begin(block);
                multiply_packed<TURNS, COLUMNS>(tile, block, ring, work.end_block, exists ? b.chunks : 0, some_sums);
            }
        });
    }
}

// As many threads copy scales of tokens as gather them: one loop does for both.
template <class Tile>
constexpr bool COPIES_EITHER = requires { requires Tile::SCALED && Tile::GATHERING_THREADS == Tile::SCALING_THREADS; };

// Rows: of e4m3, how they are put together, or OnlyHalves. `result.d` is null where h is quantised.
template <class Tile, class Order, class Rows>
struct GatedProduct {
    Tile tile;
    StagedGates<Tile> staged[Tile::MATH_WARPS];
    Rows rows;
    static_assert(!Tile::PARKS && Tile::WARPGROUPS == 2);
    static constexpr bool QUANTISES_ALWAYS = OfClusters<Order> && !InTurn<Order> && !Tile::STORED;  // cubins of pairs alone

    __device__ __forceinline__ void run(Order order, const auto& operands, const IndexedRows& indexed, const auto& result,
                                        const GatedElements& elements) {
        let_next_kernel_launch();
        tile.initialise(operands);
        if (threadIdx.x == 0) {
            rows.initialise();
            prefetch(operands.a);
            if constexpr (Tile::STORED) prefetch(operands.stored);
        }
        operands.clear_missing_tokens(tile);
        __syncthreads();
        if constexpr (OfClusters<Order>) meet_cluster();  // when all have, they may be sent to
        wait_for_previous_kernel();

        if (warp_index() >= Tile::MATH_WARPS) {
            if constexpr (Tile::HUNGRY) keep_registers<Tile::LOADER_REGISTERS>();
            const int thread = threadIdx.x - Tile::MATH_THREADS;
            if (thread < 32) {
                if (OfWarps<Order> || thread == 0) load_operands(tile, order, operands, thread);
            } else if constexpr (COPIES_EITHER<Tile>) {
                gather_tokens(tile, order, indexed, operands.scales, thread - 32, operands.gathers());
            } else if constexpr (Tile::MAY_GATHER) {
                if (operands.gathers()) {
                    if (thread - 32 < Tile::GATHERING_THREADS) gather_tokens(tile, order, indexed, operands.scales, thread - 32);
                } else if constexpr (Tile::SCALED) {
                    if (thread - 32 < Tile::SCALING_THREADS) load_token_scales(tile, order, operands.scales, thread - 32);
                }
            }
        } else {
            if constexpr (Tile::HUNGRY) take_registers<Tile::MATH_REGISTERS>();
            Ring<Tile::STAGES> ring;
            uint32_t turn = 0, exchange = 0;
            typename Rows::Left left;
            for (Work work; order.next(work);) {
                float sums[1][Tile::SUMS], h[Tile::SUMS / 2];
                staged[thread_index_anew() / 32].ask_for_factors(result, work);
                multiply_tile(tile, ring, operands, work, sums);
                activate<Tile>(result, staged[thread_index_anew() / 32], work, sums[0], h);
                if (std::is_same_v<Rows, OnlyHalves> || (!QUANTISES_ALWAYS && !elements.wanted())) {
                    store_halves_of_h<Tile>(result, staged[thread_index_anew() / 32], work, h);
                } else if constexpr (OfClusters<Order> && !InTurn<Order>) {
                    const bool shared = order.is_shared(work);
                    rows.quantise_and_store(result.finish, elements, work, shared, turn++, exchange, h);
                    exchange += shared;
                } else if constexpr (!std::is_same_v<Rows, OnlyHalves>) {
                    if (order.another) {
                        rows.keep(turn, h, left);
                    } else if constexpr (OfClusters<Order>) {
                        const bool shared = order.is_shared(work);
                        rows.quantise_and_store(result.finish, elements, work, order.is_second(work), shared, turn++, exchange, h,
                                                left);
                        exchange += shared;
                    } else {
                        rows.quantise_and_store(result.finish, elements, work, order.is_second(work), turn++, h, left);
                    }
                }
                // Tells ptxas that lanes go on together. bf16's loops become no better by it.
                if constexpr (!Tile::OF_BF16) __syncwarp();
            }
        }
    }
};

}  // namespace zoo
