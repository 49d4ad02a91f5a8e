// The two ways of putting a product with 4-bit weights together: persistent CTAs, which take tile after tile while copies run ahead, and
// clusters whose CTAs share K, where tiles do not fill the chip. Orders and the way sums meet are those of fp8b128.
#pragma once

#include <cstdint>
#include <type_traits>

#include "common/cluster.cuh"
#include "common/dependent_launch.cuh"
#include "common/registers.cuh"
#include "gemm/four_bit/finish.cuh"
#include "gemm/four_bit/halves.cuh"
#include "gemm/four_bit/load.cuh"
#include "gemm/four_bit/multiply.cuh"
#include "gemm/four_bit/order.cuh"
#include "gemm/four_bit/shared_sums.cuh"
#include "gemm/four_bit/width.cuh"
#include "gemm/schedule/tile_order.cuh"

namespace zoo {

// One matrix.
template <class Tile, int TOKENS, int SPLITS, int BAND, class Rows = FewOrEvenTiles<Tile, TOKENS>>
using OrderOfOne = std::conditional_t<(SPLITS > 1), SplitOrder<Tile, SPLITS, Rows>, DenseOrder<Tile, BAND, Rows>>;

// From what a launch is given: the order of tiles of one matrix of `rows`, or of groups, each in a place of as many or, where that is 0, one
// after the other.
template <class Order>
__device__ __forceinline__ Order order_of(const int* places, int groups, int rows, int box_rows, int N, int blocks) {
    if constexpr (requires { Order(rows, N, blocks); })
        return Order(rows, N, blocks);
    else if constexpr (requires { Order(EndsOrPlaces{places, rows}, groups, box_rows, N, blocks); })
        return Order(EndsOrPlaces{places, rows}, groups, box_rows, N, blocks);
    else
        return Order(EndsOrPlaces{places, rows}, groups, N, blocks);
}

// The numbers that an order and a tile of it are.
template <class Tile, int BAND, class Rows, class Each>
__device__ __forceinline__ void each_number(DenseOrder<Tile, BAND, Rows>& order, const Each& each) {
    each(order.cut.M), each(order.rows), each(order.columns), each(order.blocks), each(order.index);
    if constexpr (requires { order.cut.fours; }) each(order.cut.fours);
}
template <class Tile, int BAND, class Groups, class Each>
__device__ __forceinline__ void each_number(GroupedOrder<Tile, BAND, Groups>& order, const Each& each) {
    each(order.columns), each(order.blocks), each(order.index), each(order.first_group), each(order.end_index);
    each(order.begin), each(order.end), each(order.own_end_index);
}
template <class Each>
__device__ __forceinline__ void each_number(Work& work, const Each& each) {
    each(work.token), each(work.weight), each(work.end_token), each(work.group);
}

// Those that decide how often a loop is run, the same in all lanes.
template <class Order, class Each>
__device__ __forceinline__ void each_number_of_loops(Order& order, const Each& each) {
    each(order.blocks), each(order.index);
    if constexpr (requires { order.end_index; }) each(order.first_group), each(order.end_index);
}

// What a multiplying thread knows of its order and its tile, out of its registers and back: each number of all threads together. In
// assembly, or the compiler keeps them.
template <class Tile>
struct Parked {
    static constexpr int NUMBERS = 12;
    int numbers[NUMBERS][Tile::MATH_THREADS];

    template <class Order>
    __device__ __forceinline__ void park(Order& order, Work& work) {
        uint32_t at = shared_address(&numbers[0][thread_index_anew()]);
        auto store = [&](int number) {
            asm volatile("st.shared.u32 [%0], %1;" ::"r"(at), "r"(number) : "memory");
            at += sizeof(numbers[0]);
        };
        each_number(order, store);
        each_number(work, store);
    }
    template <class Order>
    __device__ __forceinline__ void fetch(Order& order, Work& work) const {
        uint32_t at = shared_address(&numbers[0][thread_index_anew()]);
        auto load = [&](int& number) {
            asm volatile("ld.shared.u32 %0, [%1];" : "=r"(number) : "r"(at) : "memory");
            at += sizeof(numbers[0]);
        };
        each_number(order, load);
        each_number(work, load);
        each_number_of_loops(order, [](int& number) { number = same_in_all_lanes(number); });
    }
};

template <class Tile, class Order, int SPLITS>
struct FourBitProduct {
    Tile tile;
    StagedByWarps<Tile, SPLITS> staged;
    PushedByCluster<Tile, SPLITS> pushed;
    std::conditional_t<Tile::PARKS, Parked<Tile>, Nothing> parked;

    template <class Operands, class Result>
    __device__ __forceinline__ void run(const auto& make_order, const Operands& operands, const IndexedRows& rows,
                                        const Result& d) {
        Order order = make_order();
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
            } else if (thread - 32 < Tile::COPYING_THREADS) {
                if constexpr (Tile::MAY_GATHER) {
                    if (!operands.gathers()) {
                        if constexpr (Tile::SCALED)
                            if (thread - 32 < Tile::SCALING_THREADS) load_token_scales(tile, order, operands.scales, thread - 32);
                        return;
                    }
                }
                if constexpr (Tile::GATHERING_THREADS > 0)
                    gather_tokens(tile, order, rows, operands.scales, thread - 32);
                else if constexpr (Tile::SCALED)
                    load_token_scales(tile, order, operands.scales, thread - 32);
            }
            __syncwarp();
            if constexpr (SPLITS > 1) wait_for_cluster();
        } else {
            if constexpr (Tile::HUNGRY) take_registers<Tile::MATH_REGISTERS>();
            if constexpr (SPLITS > 1) wait_for_cluster();
            Ring<Tile::STAGES> ring;
            const bool is_plain = Tile::ENDS_PLAINLY && d.is_plain();
            auto as_plain = [&](const auto& what) { is_plain ? what(d.plain()) : what(d); };
            for (Work work; order.next(work);) {
                const bool exists = work.weight / CHUNK_ROWS + warpgroup_index() < operands.b.tiles;
                int end = operands.b.chunks;
                if constexpr (SPLITS > 1) end = min(end, work.end_block * PROMOTED_CHUNKS);  // of this CTA's share
                const int left = exists ? end - work.first_block * PROMOTED_CHUNKS : 0;
                float sums[Tile::SUMS];
                if constexpr (SPLITS == 1)
                    as_plain([&](const Result& d) { staged[thread_index_anew() / 32].ask_for_factors(d, work); });
                else
                    pushed.ask_for_factors(d, work, threadIdx.x);
                if constexpr (Tile::PARKS) parked.park(order, work);
                const int blocks = work.end_block - work.first_block;
                multiply_as_wide_as<Tile>(work.end_token - work.token, sums, [&]<int TURNS, int COLUMNS>(auto& some_sums) {
                    if constexpr (Tile::SCALED) {
                        multiply_by_halves<TURNS, COLUMNS>(tile, ring, blocks, left, some_sums, [&](auto& block) {
                            if constexpr (Tile::STORED) block.begin(operands.stored_scales, work);
                        });
                    } else {
                        BlockOf<Tile> block;
                        if constexpr (Tile::STORED) block.begin(operands.stored_scales, work);
                        multiply_packed<TURNS, COLUMNS>(tile, block, ring, blocks, left, some_sums, operands.promotion);
                    }
                });
                if constexpr (Tile::PARKS) parked.fetch(order, work);
                if constexpr (SPLITS > 1)
                    pushed.push(sums);
                else
                    as_plain([&](const Result& d) {
                        finish_and_store<Tile>(d.of(work.group), staged[thread_index_anew() / 32], work, sums);
                    });
            }
        }
        if constexpr (SPLITS > 1) pushed.add_up_and_store(d, order.work);
    }
};

}  // namespace zoo
