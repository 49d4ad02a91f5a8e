// Where tile `index` of a product lies. at() is called by a whole warp with the same index, and says whether there is such a tile.
#pragma once

#include "common/warp.cuh"
#include "gemm/block_scaled/tile.cuh"
#include "gemm/schedule/tile_order.cuh"

namespace zoo {

constexpr int BAND_OF_TILES = 8;

// The lines of K of a CTA of a cluster that shares them: at most 2^24, and 8 CTAs. (A division of 64 bits would be a call.)
struct ShareOfLines {
    int lines, splits, split;

    __device__ __forceinline__ void give(ScaledWork& work) const {
        work.first_line = uint32_t(lines) * split / splits;
        work.end_line = uint32_t(lines) * (split + 1) / splits;
    }
};

// One matrix. `weights`: columns of D a tile, of those that it is compiled for.
template <class Tile>
struct OneMatrix {
    int M, N, weights;
    ShareOfLines share;

    __device__ __forceinline__ bool at(int index, ScaledWork& work) const {
        const int rows = tiles_of(M, Tile::TOKENS), columns = tiles_of(N, weights);
        if (index >= rows * columns) return false;
        const Banded<BAND_OF_TILES> place(index, rows, columns);
        work.token = work.row = place.row * Tile::TOKENS;
        work.weight = work.column = place.column * weights;
        work.token_scales = work.token / SCALE_TILE_ROWS;
        work.weight_scales = work.weight / SCALE_TILE_ROWS;
        work.rows = min(Tile::TOKENS, M - work.row);
        work.columns = min(weights, N - work.column);
        work.group = 0;
        share.give(work);
        return true;
    }
};

// A matrix of weights for each group of rows. Groups are walked along 32 at a time, a lane each, on from where the tile before lay:
// whose place a cluster takes is nobody's to say, but mostly it is a later one.
template <class Tile, class Groups>
struct ManyMatrices {
    static constexpr uint32_t ALL = 0xFFFFFFFF;
    Groups groups;
    int count, N, weights;
    ShareOfLines share;

    struct Tiles {
        int of_d, of_scales;
    };
    int first = -32;                         // of the 32 groups; none yet
    int begin = 0, end = 0;                  // rows of this lane's group
    Tiles before = {}, own = {}, past = {};  // of the groups before the 32, of this lane's, of all up to this lane's

    __device__ __forceinline__ bool at(int index, ScaledWork& work) {
        const int columns = tiles_of(N, weights);
        if (first >= 0 && index < before.of_d) first = -32;
        uint32_t later = first < 0 ? 0 : __ballot_sync(ALL, index < past.of_d);
        while (later == 0) {
            if (first + 32 >= count) return false;
            before = {first < 0 ? 0 : __shfl_sync(ALL, past.of_d, 31), first < 0 ? 0 : __shfl_sync(ALL, past.of_scales, 31)};
            first += 32;
            const int group = first + int(threadIdx.x) % 32;
            begin = end = 0;
            if (group < count) groups.find(group, begin, end);
            own = {tiles_of(end - begin, Tile::TOKENS) * columns, groups.scale_tiles(end - begin)};
            past = {before.of_d + sum_of_lanes_up_to_this(own.of_d), before.of_scales + sum_of_lanes_up_to_this(own.of_scales)};
            later = __ballot_sync(ALL, index < past.of_d);
        }
        const int owner = __ffs(later) - 1;  // the first whose tiles end after this one
        const int first_row = __shfl_sync(ALL, begin, owner), end_row = __shfl_sync(ALL, end, owner);
        const Banded<BAND_OF_TILES> place(index - __shfl_sync(ALL, past.of_d - own.of_d, owner),
                                          tiles_of(end_row - first_row, Tile::TOKENS), columns);
        const int within = place.row * Tile::TOKENS;
        work.group = first + owner;
        work.token = work.row = first_row + within;
        work.column = place.column * weights;
        work.weight = work.group * N + work.column;
        work.token_scales = __shfl_sync(ALL, past.of_scales - own.of_scales, owner) + within / SCALE_TILE_ROWS;
        work.weight_scales = work.group * tiles_of(N, SCALE_TILE_ROWS) + work.column / SCALE_TILE_ROWS;
        work.rows = min(Tile::TOKENS, end_row - work.row);
        work.columns = min(weights, N - work.column);
        share.give(work);
        return true;
    }
};

// Where a group's rows lie, and how many tiles its scales take.
struct RaggedGroups : OneAfterTheOther {
    __device__ __forceinline__ static RaggedGroups of(const int* ends, int) { return {{ends}}; }
    __device__ __forceinline__ int scale_tiles(int rows) const { return tiles_of(rows, SCALE_TILE_ROWS); }
};
struct GroupsInPlaces : EachInItsPlace {
    __device__ __forceinline__ static GroupsInPlaces of(const int* used, int rows) { return {{used, rows}}; }
    __device__ __forceinline__ int scale_tiles(int) const { return tiles_of(rows, SCALE_TILE_ROWS); }
};

}  // namespace zoo
