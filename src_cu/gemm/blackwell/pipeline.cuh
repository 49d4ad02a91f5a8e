// The roles of a CTA's eight warps, put together. A role is a loop over the CTA's tiles. All GEMMs of blackwell/ include it.
//
//     0  element producer, requests further tiles        2  scale producer, and allocates tensor memory
//     1  MMA, in the first CTA of a pair                 4..7  epilogue, 32 lanes of the sums each        3 idles
//
//     elements   | tile 0   | tile 1   | ...         a ring of STAGES
//     scales     | tile 0   | tile 1   | ...         a ring of SCALE_STAGES, with the barriers of STAGES
//     MMA           | tile 0   | tile 1   | ...      two buffers of sums
//     epilogue                 | tile 0   | ...
#pragma once

#include "common/dependent_launch.cuh"
#include "gemm/blackwell/epilogue/sums.cuh"
#include "gemm/blackwell/mainloop.cuh"
#include "gemm/blackwell/schedule/tiles.cuh"

namespace zoo {

// Which tiles a cluster computes. The first tile follows from blockIdx.
//
//     one_tile          the first tile alone: the grid has a cluster for each tile
//     launch_control    tiles of clusters that have not been launched: the grid has a cluster for each tile
//     strides           tiles as far apart as there are clusters, until there is none. Only the device knows how many tiles the groups of rows have
enum class Walk { one_tile, launch_control, strides };

__device__ __forceinline__ Walk walk_of(bool persistent, bool has_groups) {
    return !persistent ? Walk::one_tile : has_groups ? Walk::strides : Walk::launch_control;
}

// Launch control: the first CTA requests a tile when it has copied half of a tile's operands. The response comes before the other half is copied,
// if K is not short, and multiprocessors that start late still get tiles. All READERS read each response.
template <class Tile>
struct NextTile {
    // Warps of a cluster that read a response: two producers and the epilogue warps in each CTA, and the MMA warp.
    static constexpr int READERS = (2 + EPILOGUE_WARPS) * Tile::CTAS + 1;

    Tile& tile;
    Walk walk;
    bool is_element_producer = false, first_cta = false;  // of this warp; the CTA of an element producer
    bool requested = false;                               // seen by the thread that copies
    Ring<RESPONSES> ring = {};

    // The index of the tile after tile `index`, or -1. A whole warp calls this. `exists`: there is a tile `index`.
    __device__ __forceinline__ int after(int index, bool exists) {
        if (walk == Walk::one_tile) return -1;
        if (walk == Walk::strides) return exists ? index + int(gridDim.x) / Tile::CTAS : -1;
        if (is_element_producer && elected()) request();
        __syncwarp();
        wait(&tile.response_full[ring.stage], ring.parity);
        const int block = first_cta_of(&tile.responses[ring.stage]);
        let_copies_see_shared_memory();  // orders this read before the write of the next response
        __syncwarp();
        if (elected()) {
            if constexpr (Tile::CTAS == 1) arrive(&tile.response_empty[ring.stage]);
            if constexpr (Tile::CTAS > 1) arrive_in_cta(&tile.response_empty[ring.stage], 0);
        }
        ring.advance();
        requested = false;
        return block < 0 ? -1 : block / Tile::CTAS;
    }

    // Requests the next tile, unless that is done. The thread that copies elements calls this.
    __device__ __forceinline__ void request() {
        if (walk != Walk::launch_control || requested) return;
        requested = true;
        if (first_cta) wait(&tile.response_empty[ring.stage], ring.parity ^ 1);
        arrive_expecting_bytes(&tile.response_full[ring.stage], sizeof(LaunchAnswer));
        if constexpr (Tile::CTAS == 1) request_next_cluster(&tile.responses[ring.stage], &tile.response_full[ring.stage]);
        if constexpr (Tile::CTAS > 1)
            if (first_cta) request_next_cluster_for_all(&tile.responses[ring.stage], &tile.response_full[ring.stage]);
    }
};

// Calls `what` for each work of tile `index`. Returns whether there is such a tile. Overloads serve tiles of several works.
template <class Tiles, class What>
__device__ __forceinline__ bool for_each_work(Tiles& tiles, int index, What what) {
    TileWork work = {};
    const bool exists = tiles.at(index, work);
    if (exists) what(work);
    return exists;
}

template <class Tile>
struct Pipeline {
    Tile& tile;
    int cluster;  // CTAs that compute one tile together
    Walk walk;
    int rank = Tile::CTAS > 1 ? cluster_rank() : 0;  // in the pair

    __device__ __forceinline__ static int warp() { return __shfl_sync(0xFFFFFFFF, threadIdx.x / 32, 0); }

    __device__ __forceinline__ void synchronise() const {
        if (cluster == 1)
            __syncthreads();
        else
            synchronise_cluster();
    }

    // All threads call this. `types` are bits of the instruction descriptor, K the operands' columns. store(sums, work, lane) is the epilogue.
    template <class Tiles, class Elements, class Scales, class Store>
    __device__ __forceinline__ void run(const Tiles& tiles, const Elements& elements, const Scales& scales, uint32_t types, int K,
                                        Store store) {
        const int role = warp();
        if (role == 0) {
            if (elected()) {
                elements.prefetch_maps();
                scales.prefetch_maps();
            }
            tile.initialise_barriers(NextTile<Tile>::READERS);
        }
        __syncwarp();
        if constexpr (Tile::CTAS > 1) synchronise_cluster_relaxed();  // a pair allocates together, so both CTAs must run
        if (role == 2) allocate_columns<Tile::CTAS, TENSOR_MEMORY_COLUMNS>(&tile.tensor_memory);
        fence_before_handing_over();
        synchronise();
        fence_after_taking_over();
        // Where weights may be loaded ahead, the MMA warp waits in a branch of its own: else ptxas keeps its descriptors in per-lane registers.
        constexpr bool LOADS_AHEAD = requires { requires Elements::LOADS_AHEAD; };
        if constexpr (!LOADS_AHEAD) follow_previous_kernel();
        if (role == 1) {
            if constexpr (LOADS_AHEAD) follow_previous_kernel();
            Mainloop<Tile> mainloop(tile);
            NextTile<Tile> next_tile{tile, walk};
            if (rank == 0) for_each_tile(tiles, next_tile, [&](const TileWork& work) { mainloop.run(tile, work, types, K); });
        } else {
            if constexpr (LOADS_AHEAD) {
                if (role == 0 && elements.weights_ahead > 0) load_weights_ahead(tiles, elements);
                follow_previous_kernel();
            }
            if (role != 3) move_data(role, tiles, elements, scales, store);
        }
        __syncwarp();
    }

    // All threads call this after the last tile.
    __device__ __forceinline__ void free_tensor_memory() const {
        fence_before_handing_over();
        synchronise();  // all reads of tensor memory and all arrivals at either CTA's barriers are over
        if (warp() == 2) {
            fence_after_taking_over();
            free_columns<Tile::CTAS, TENSOR_MEMORY_COLUMNS>(tile.tensor_memory);
        }
    }

   private:
    __device__ __forceinline__ static void follow_previous_kernel() {
        wait_for_previous_kernel();
        let_next_kernel_launch();
    }

    // The weights of the first tile, before the previous kernel has ended. A whole warp calls this. The tiles must follow from arguments alone.
    template <class Tiles, class Elements>
    __device__ __forceinline__ void load_weights_ahead(Tiles tiles, const Elements& elements) const {
        for_each_work(tiles, blockIdx.x / cluster, [&](const TileWork& work) {
            if (elected()) elements.load_weights_ahead(tile, work, rank);
        });
        __syncwarp();
    }

    template <class Tiles, class What>
    __device__ __forceinline__ void for_each_tile(Tiles tiles, NextTile<Tile>& next_tile, What what) const {
#pragma unroll 1
        for (int index = blockIdx.x / cluster; index >= 0;) {
            const bool exists = for_each_work(tiles, index, [&](const TileWork& work) {
                what(work);
                __syncwarp();
            });
            __syncwarp();
            index = next_tile.after(index, exists);
        }
    }

    // Producers and epilogue share one loop, since computing a tile's position is much code. The MMA warp has a loop of its own: in the shared
    // loop ptxas does not see that the warp is converged, and would keep descriptors in per-lane registers.
    template <class Tiles, class Elements, class Scales, class Store>
    __device__ __forceinline__ void move_data(int role, const Tiles& tiles, Elements elements, const Scales& scales,
                                              Store store) const {
        BlockRing<Tile> ring;
        SumsReader<Tile> sums;
        NextTile<Tile> next_tile{tile, walk, role == 0, rank == 0};
        for_each_tile(tiles, next_tile, [&](const TileWork& work) {
            if (role == 0)
                elements.load(tile, ring, work, rank, [&] { next_tile.request(); });
            else if (role == 2)
                scales.load(tile, ring, work, rank);
            else
                store(sums, work, (role - 4) * 32 + int(threadIdx.x) % 32);
        });
        if (role == 0 && elected()) wait_until_all_are_empty(ring);
    }

    // The first CTA's MMAs arrive at the barriers of both CTAs. A CTA must not end before all arrivals have come.
    __device__ __forceinline__ void wait_until_all_are_empty(Ring<Tile::STAGES> ring) const {
#pragma unroll 1
        for (int i = 0; i < Tile::STAGES; i++, ring.advance()) wait(&tile.empty[ring.stage], ring.parity ^ 1);
    }
};

}  // namespace zoo
