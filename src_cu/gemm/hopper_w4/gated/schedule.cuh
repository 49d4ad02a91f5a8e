// Which tiles a CTA of a SwiGLU product computes. Only gated/pipeline.cuh includes this file.
//
// One scale of h in e4m3 covers 128 columns of h. A tile has 64 columns, so two neighbouring tiles share scales: a double tile.
//
//     columns of h     | 0 ... 63   | 64 ... 127 | 128 ... 191 | 192 ... 255 |
//     tiles            | left       | right      | left        | right       |
//     double tiles     |            0            |             1             |
//
// Four schedules give out tiles. `tiles_per_scale` is 2 if h gets its own scales. Otherwise it is 1, and tiles are independent.
//
//     DoubleTilesInSequence                one CTA: the left tile, then the right tile
//     DoubleTilesByCluster                 a cluster of two CTAs: one tile each, at the same time
//     DoubleTilesByClusterOrTiles          the cluster; independent tiles by each CTA where tiles_per_scale is 1
//     DoubleTilesByClusterOrInSequence     the cluster, or one CTA in a launch without clusters
#pragma once

#include "common/cluster.cuh"
#include "gemm/schedule/grouped_schedule.cuh"

namespace zoo {

// Whether next() ends with a warp vote, so ptxas treats the warp as converged. The vote makes mainloops shorter, except those of stored bf16 weights
// above eight tokens.
template <class Tile>
constexpr bool VOTES = !(Tile::OF_BF16 && Tile::STORED && Tile::TOKENS > 8);

template <class Tile, class Schedule>
struct DoubleTilesInSequence : Schedule {
    int N, tiles_per_scale;
    bool right_follows = false;  // next() gave a left tile last, and gives its right tile next

    template <class Rows>
    __device__ __forceinline__ DoubleTilesInSequence(Rows rows, int groups, int N, int tiles_per_scale, int blocks)
        : Schedule(rows, groups, ceil_div(N, tiles_per_scale * Tile::WEIGHTS) * Tile::WEIGHTS, blocks), N(N),
          tiles_per_scale(tiles_per_scale) {}

    // `work` is the tile that next() gave last.
    __device__ __forceinline__ bool next(Work& work) {
        if constexpr (!VOTES<Tile>) {
            if (same_in_all_lanes(right_follows)) {
                move_right(work);
                return true;
            }
            if (!Schedule::next(work)) return false;
            move_to_left_tile(work);
            return true;
        } else {
            bool more = true;
            if (same_in_all_lanes(right_follows))
                move_right(work);
            else if ((more = Schedule::next(work)))
                move_to_left_tile(work);
            return __any_sync(0xFFFFFFFF, more);
        }
    }

    __device__ __forceinline__ bool is_right_tile(const Work& work) const {
        return tiles_per_scale > 1 && work.weight / Tile::WEIGHTS % 2 == 1;
    }

   private:
    __device__ __forceinline__ void move_right(Work& work) {
        work.weight += Tile::WEIGHTS;
        right_follows = false;
    }
    __device__ __forceinline__ void move_to_left_tile(Work& work) {
        work.weight *= tiles_per_scale;
        right_follows = tiles_per_scale > 1 && work.weight + Tile::WEIGHTS < N;
    }
};

// For few rows. A CTA whose right tile is beyond the last column skips the double tile.
template <class Tile, class Rows>
struct DoubleTilesByCluster : ManyGroupsSchedule<Tile, Rows, 2> {
    using DoubleTiles = ManyGroupsSchedule<Tile, Rows, 2>;
    int N;

    __device__ __forceinline__ DoubleTilesByCluster(Rows rows, int groups, int N, int /* tiles_per_scale is 2 */, int blocks)
        : DoubleTiles(rows, groups, ceil_div(N, 2 * Tile::WEIGHTS) * Tile::WEIGHTS, blocks), N(N) {}

    __device__ __forceinline__ bool next(Work& work) {
        do {
            if (!DoubleTiles::next(work)) return false;
            work.weight = work.weight * 2 + int(blockIdx.x % 2) * Tile::WEIGHTS;
        } while (work.weight >= N);
        return true;
    }

    // Whether the other CTA has the other tile of this double tile.
    __device__ __forceinline__ bool shares_scales(const Work& work) const {
        return (work.weight / Tile::WEIGHTS ^ 1) * Tile::WEIGHTS < N;
    }
};

// Calls Steps::advance() until it gives a tile whose columns exist. Without a vote, the last __syncwarp() tells ptxas that the lanes stay together.
template <class Steps, bool BY_VOTE>
struct SkipMissingTiles : Steps {
    using Steps::Steps;

    // `work` is the tile that next() gave last.
    __device__ __forceinline__ bool next(Work& work) {
        if constexpr (BY_VOTE) {
            bool more;
            do more = Steps::advance(work);
            while (__any_sync(0xFFFFFFFF, more && work.weight >= Steps::N));
            return more;
        } else {
            do
                if (!Steps::advance(work)) return false;
            while (work.weight >= Steps::N);
            __syncwarp();
            return true;
        }
    }
};

template <class Tile, class Rows>
struct ClusterOrTilesSteps : ManyGroupsSchedule<Tile, Rows> {
    using Tiles = ManyGroupsSchedule<Tile, Rows>;  // tiles or double tiles
    int N, peers;                                  // other CTAs that compute the same double tile: 0 or 1

    __device__ __forceinline__ ClusterOrTilesSteps(Rows rows, int groups, int N, int tiles_per_scale, int blocks)
        : Tiles(rows, groups, ceil_div(N, tiles_per_scale * Tile::WEIGHTS) * Tile::WEIGHTS, blocks), N(N),
          peers(tiles_per_scale - 1) {
        this->index = blockIdx.x >> peers;
    }

    __device__ __forceinline__ bool shares_scales(const Work& work) const {
        return peers != 0 && (work.weight / Tile::WEIGHTS ^ 1) * Tile::WEIGHTS < N;
    }

   protected:
    __device__ __forceinline__ bool advance(Work& work) {
        work.weight = 0;  // SkipMissingTiles reads it after the last tile, too
        if (!Tiles::next(work)) return false;
        this->index -= gridDim.x - (gridDim.x >> peers);
        work.weight = (work.weight << peers) + int(blockIdx.x & peers) * Tile::WEIGHTS;
        return true;
    }
};

template <class Tile, class Rows>
using DoubleTilesByClusterOrTiles = SkipMissingTiles<ClusterOrTilesSteps<Tile, Rows>, VOTES<Tile>>;

template <class Tile, class Schedule>
struct ClusterOrSequenceSteps : Schedule {
    int N, tiles_per_scale, peers;
    bool right_follows = false;  // next() gave a left tile last, and gives its right tile next

    template <class Rows>
    __device__ __forceinline__ ClusterOrSequenceSteps(Rows rows, int groups, int N, int tiles_per_scale, int blocks)
        : Schedule(rows, groups, ceil_div(N, tiles_per_scale * Tile::WEIGHTS) * Tile::WEIGHTS, blocks), N(N),
          tiles_per_scale(tiles_per_scale), peers(int(cluster_size()) - 1) {
        this->index = blockIdx.x >> peers;
    }

    // Whether this CTA has computed the left tile, too.
    __device__ __forceinline__ bool is_right_tile(const Work& work) const {
        return tiles_per_scale - peers > 1 && work.weight / Tile::WEIGHTS % 2 == 1;
    }
    __device__ __forceinline__ bool shares_scales(const Work& work) const {
        return peers != 0 && (work.weight / Tile::WEIGHTS ^ 1) * Tile::WEIGHTS < N;
    }

   protected:
    __device__ __forceinline__ bool advance(Work& work) {
        if (same_in_all_lanes(right_follows)) {
            work.weight += Tile::WEIGHTS;
            right_follows = false;
            return true;
        }
        work.weight = 0;  // SkipMissingTiles reads it after the last tile, too
        if (!Schedule::next(work)) return false;
        this->index -= gridDim.x - (gridDim.x >> peers);
        work.weight = work.weight * tiles_per_scale + int(blockIdx.x & peers) * Tile::WEIGHTS;
        right_follows = tiles_per_scale - peers > 1 && work.weight + Tile::WEIGHTS < N;
        return true;
    }
};

template <class Tile, class Schedule>
using DoubleTilesByClusterOrInSequence = SkipMissingTiles<ClusterOrSequenceSteps<Tile, Schedule>, VOTES<Tile>>;

// The two CTAs of a cluster may compute the tiles of a double tile.
template <class Schedule>
concept SharesScalesInCluster = requires(Schedule schedule, Work work) { schedule.shares_scales(work); };
// One CTA may compute both tiles of a double tile.
template <class Schedule>
concept TakesBothTiles = requires(Schedule schedule, Work work) { schedule.is_right_tile(work); };

}  // namespace zoo
