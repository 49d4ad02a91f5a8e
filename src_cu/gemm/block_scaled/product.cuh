// A block-scaled product on Blackwell, put together. Eight warps of a CTA, one role each:
//
//     0  elements to shared memory         2  scales to shared memory, and owner of tensor memory
//     1  multiplies (of a pair the first)  3  asks for further tiles        4..7  sums to D, 32 lanes each
//
//     elements   | tile 0   | tile 1   | ...         a ring of stages
//     scales     | tile 0   | tile 1   | ...         a ring of their own
//     multiplier    | tile 0   | tile 1   | ...      two sums in turns
//     storing                  | tile 0   | ...
#pragma once

#include "common/dependent_launch.cuh"
#include "gemm/block_scaled/load.cuh"
#include "gemm/block_scaled/multiply.cuh"
#include "gemm/block_scaled/store.cuh"
#include "gemm/block_scaled/turns.cuh"

namespace zoo {

// The works of a tile: one, if its order does not say otherwise.
template <class Order, class What>
__device__ __forceinline__ void each_work(Order& order, int index, What what) {
    ScaledWork work = {};
    if (order.at(index, work)) what(work);
}

template <class Tile>
struct Product {
    static constexpr int COLUMNS = TENSOR_COLUMNS;

    Tile& tile;
    int cluster;  // CTAs that have one tile
    bool asks;
    int rank = Tile::CTAS > 1 ? cluster_rank() : 0;  // in the pair

    __device__ __forceinline__ static int warp() { return __shfl_sync(0xFFFFFFFF, threadIdx.x / 32, 0); }

    __device__ __forceinline__ void synchronise() const {
        if (cluster == 1)
            __syncthreads();
        else
            synchronise_cluster();
    }

    template <class Order, class Elements, class Scales, class Store>
    __device__ __forceinline__ void run(const Order& order, const Elements& elements, const Scales& scales, uint32_t types, int K,
                                        Store store) {
        const int role = warp();
        if (role == 0) {
            if (elected()) {
                elements.prefetch_maps();
                scales.prefetch_maps();
            }
            tile.initialise_barriers(Turns<Tile>::READERS);
        }
        __syncwarp();
        if constexpr (Tile::CTAS > 1) meet_cluster();  // the other CTA runs: a pair allocates together
        if (role == 2) allocate_columns<Tile::CTAS, COLUMNS>(&tile.tensor_memory);
        fence_before_handing_over();
        synchronise();
        fence_after_taking_over();
        wait_for_previous_kernel();
        let_next_kernel_launch();
        if (role == 1) {
            Multiplier<Tile> multiplier;
            if (rank == 0) for_each(order, [&](const ScaledWork& work) { multiplier.run(tile, work, types, K); });
        } else if (role == 3) {
            Turns<Tile>{tile, asks}.ask(rank == 0);
        } else {
            move(role, order, elements, scales, store);
        }
        __syncwarp();
    }

    // By all threads at the end.
    __device__ __forceinline__ void free() const {
        fence_before_handing_over();
        synchronise();  // nobody reads tensor memory any more, and nothing is on its way to either CTA's barriers
        if (warp() == 2) {
            fence_after_taking_over();
            free_columns<Tile::CTAS, COLUMNS>(tile.tensor_memory);
        }
    }

   private:
    // A role's loop over the tiles, `what(work)` for each.
    template <class Order, class What>
    __device__ __forceinline__ void for_each(Order order, What what) const {
        Turns<Tile> turns{tile, asks};
#pragma unroll 1
        for (int index = blockIdx.x / cluster; index >= 0; index = turns.next()) {
            each_work(order, index, [&](const ScaledWork& work) {
                what(work);
                __syncwarp();
            });
            __syncwarp();
        }
    }

    // The roles that move data have one loop, as where a tile lies takes much code. The multiplier has its own: in this one ptxas does not
    // see that all lanes of its warp are at the same place, and would bring what its instructions take from registers of lanes.
    template <class Order, class Elements, class Scales, class Store>
    __device__ __forceinline__ void move(int role, const Order& order, const Elements& elements, const Scales& scales,
                                         Store store) const {
        Ring<Tile::STAGES> ring;
        Ring<Tile::SCALE_STAGES> scale_ring;
        Drain<Tile> drain;
        for_each(order, [&](const ScaledWork& work) {
            if (role == 0)
                elements.load(tile, ring, work, rank);
            else if (role == 2)
                scales.load(tile, scale_ring, work, rank);
            else
                store(drain, work, (role - 4) * 32 + int(threadIdx.x) % 32);
        });
        if (role == 0 && elected()) wait_until_all_are_empty(tile.empty, ring);
        if (role == 2 && elected()) wait_until_all_are_empty(tile.scales_empty, scale_ring);
    }

    // The products' arrivals have come: the other CTA made them, and this one may not end before.
    template <int STAGES>
    __device__ __forceinline__ void wait_until_all_are_empty(Barrier (&empty)[STAGES], Ring<STAGES>& ring) const {
#pragma unroll 1
        for (int i = 0; i < STAGES; i++, ring.advance()) wait(&empty[ring.stage], ring.parity ^ 1);
    }
};

}  // namespace zoo
