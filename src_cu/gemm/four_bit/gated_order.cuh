// Who computes which tile where weights are gates and ups: one matrix or groups, wherever their rows lie, so that one cubin serves them
// all; and tiles that share scales of the result, one after the other by the same CTA or at once by a cluster's.
#pragma once

#include "common/cluster.cuh"
#include "gemm/schedule/many_groups.cuh"
#include "gemm/schedule/tile_order.cuh"

namespace zoo {

// Rows of a group: all `rows` where there are no places; the first of a place of `rows`; or, where that is 0, between two ends.
// ptxas would make a loop over groups for each of the three, which takes more code and fewer registers: only where these are SCARCE.
template <bool SCARCE>
struct AnyPlaces {
    const int* places;
    int rows;

    __device__ __forceinline__ void find(int group, int& begin, int& end) const {
        int room = rows;
        if constexpr (!SCARCE) asm volatile("" : "+r"(room));
        if (room == 0) return OneAfterTheOther{places}.find(group, begin, end);
        begin = group * room;
        end = begin + (places != nullptr ? places[group] : room);
    }
};

// Tiles of Order, of PARTS tiles' width where `parts` is 2: their left half first, then the right one, if there is one.
template <class Tile, class Order>
struct PartsInTurn : Order {
    int N, parts;
    bool another = false;  // after the tile that was given last

    template <class Places>
    __device__ __forceinline__ PartsInTurn(Places places, int groups, int N, int parts, int blocks)
        : Order(places, groups, tiles_of(N, parts * Tile::WEIGHTS) * Tile::WEIGHTS, blocks), N(N), parts(parts) {}

    // `work` is what was given last. One way out, by a vote: so ptxas knows in loops over K of packed bf16 that lanes go on together; others are
    // longer behind it.
    __device__ __forceinline__ bool next(Work& work) {
        if constexpr (Tile::OF_BF16 && !Tile::STORED) {
            bool more = true;
            if (same_in_all_lanes(another))
                to_the_right(work);
            else if ((more = Order::next(work)))
                to_the_left(work);
            return __any_sync(0xFFFFFFFF, more);
        } else {
            if (same_in_all_lanes(another)) {
                to_the_right(work);
                return true;
            }
            if (!Order::next(work)) return false;
            to_the_left(work);
            return true;
        }
    }

    // The tile that was given last: whether it is a right half.
    __device__ __forceinline__ bool is_second(const Work& work) const {
        return parts > 1 && work.weight / Tile::WEIGHTS % 2 == 1;
    }

   private:
    __device__ __forceinline__ void to_the_right(Work& work) {
        work.weight += Tile::WEIGHTS;
        another = false;
    }
    __device__ __forceinline__ void to_the_left(Work& work) {
        work.weight *= parts;
        another = parts > 1 && work.weight + Tile::WEIGHTS < N;
    }
};

// For clusters of two CTAs, few rows: two tiles next to each other, of which each takes one, if there is one for it.
template <class Tile, class Places>
struct TilesOfClusters : ManyGroupsOrder<Tile, Places, 2> {
    using Pairs = ManyGroupsOrder<Tile, Places, 2>;
    int N;

    __device__ __forceinline__ TilesOfClusters(Places places, int groups, int N, int /* two parts */, int blocks)
        : Pairs(places, groups, tiles_of(N, 2 * Tile::WEIGHTS) * Tile::WEIGHTS, blocks), N(N) {}

    __device__ __forceinline__ bool next(Work& work) {
        do {
            if (!Pairs::next(work)) return false;
            work.weight = work.weight * 2 + int(blockIdx.x % 2) * Tile::WEIGHTS;
        } while (work.weight >= N);
        return true;
    }

    // The tile that was given last: whether the other CTA has the one that it shares scales with.
    __device__ __forceinline__ bool is_shared(const Work& work) const {
        return (work.weight / Tile::WEIGHTS ^ 1) * Tile::WEIGHTS < N;
    }
};

// Steps of Steps::advance(), which may come to tiles of columns that do not exist, to those that do. By a vote, or by the last line, ptxas knows
// that lanes go on together.
template <class Steps, bool BY_VOTE>
struct TilesThatExist : Steps {
    using Steps::Steps;

    // `work` is what was given last.
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

// As TilesOfClusters where `parts` is 2; where it is 1, each CTA takes tiles by itself, in a cluster or not.
template <class Tile, class Places>
struct StepsOfClustersOrCtas : ManyGroupsOrder<Tile, Places> {
    using Units = ManyGroupsOrder<Tile, Places>;
    int N, others;  // that take tiles with this CTA

    __device__ __forceinline__ StepsOfClustersOrCtas(Places places, int groups, int N, int parts, int blocks)
        : Units(places, groups, tiles_of(N, parts * Tile::WEIGHTS) * Tile::WEIGHTS, blocks), N(N), others(parts - 1) {
        this->index = blockIdx.x >> others;
    }

    __device__ __forceinline__ bool is_shared(const Work& work) const {
        return others != 0 && (work.weight / Tile::WEIGHTS ^ 1) * Tile::WEIGHTS < N;
    }

   protected:
    __device__ __forceinline__ bool advance(Work& work) {
        work.weight = 0;  // read by a vote even if there is no more
        if (!Units::next(work)) return false;
        this->index -= gridDim.x - (gridDim.x >> others);
        work.weight = (work.weight << others) + int(blockIdx.x & others) * Tile::WEIGHTS;
        return true;
    }
};

// The loop over K of eight bf16 rows is shorter behind a vote, others are longer.
template <class Tile, class Places>
using TilesOfClustersOrCtas = TilesThatExist<StepsOfClustersOrCtas<Tile, Places>, (Tile::OF_BF16 && Tile::TOKENS == 8)>;

// Tiles that share scales are taken by a cluster's two CTAs at once or, where the launch has no clusters, by one CTA in turn.
template <class Tile, class Order>
struct StepsOfClustersOrInTurn : Order {
    int N, parts, others;  // CTAs that take tiles with this one
    bool another = false;  // by this CTA after the tile that was given last

    template <class Places>
    __device__ __forceinline__ StepsOfClustersOrInTurn(Places places, int groups, int N, int parts, int blocks)
        : Order(places, groups, tiles_of(N, parts * Tile::WEIGHTS) * Tile::WEIGHTS, blocks), N(N), parts(parts),
          others(int(cluster_size()) - 1) {
        this->index = blockIdx.x >> others;
    }

    // The tile that was given last: whether it is a right one whose left one this CTA has had, or has one that another CTA has.
    __device__ __forceinline__ bool is_second(const Work& work) const {
        return parts - others > 1 && work.weight / Tile::WEIGHTS % 2 == 1;
    }
    __device__ __forceinline__ bool is_shared(const Work& work) const {
        return others != 0 && (work.weight / Tile::WEIGHTS ^ 1) * Tile::WEIGHTS < N;
    }

   protected:
    __device__ __forceinline__ bool advance(Work& work) {
        if (same_in_all_lanes(another)) {
            work.weight += Tile::WEIGHTS;
            another = false;
            return true;
        }
        work.weight = 0;  // read by a vote even if there is no more
        if (!Order::next(work)) return false;
        this->index -= gridDim.x - (gridDim.x >> others);
        work.weight = work.weight * parts + int(blockIdx.x & others) * Tile::WEIGHTS;
        another = parts - others > 1 && work.weight + Tile::WEIGHTS < N;
        return true;
    }
};

template <class Tile, class Order>
using TilesOfClustersOrInTurn = TilesThatExist<StepsOfClustersOrInTurn<Tile, Order>, Tile::OF_BF16>;

template <class Order>
concept OfClusters = requires(Order order, Work work) { order.is_shared(work); };
template <class Order>
concept InTurn = requires(Order order, Work work) { order.is_second(work); };

}  // namespace zoo
