// Where tile `index` of a product lies. at() is called by a whole warp with the same index, and says whether there is such a tile.
#pragma once

#include "common/warp.cuh"
#include "gemm/block_scaled/tile.cuh"
#include "gemm/tile_order.cuh"

namespace zoo {

constexpr int BAND_OF_TILES = 8;

// The lines of K of a CTA of a cluster that shares them.
struct ShareOfLines {
    int lines, splits, split;

    __device__ __forceinline__ void give(ScaledWork& work) const {
        work.first_line = int(int64_t(lines) * split / splits);
        work.end_line = int(int64_t(lines) * (split + 1) / splits);
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

// A matrix of weights for each group of rows. Groups are walked along 32 at a time, a lane each.
template <class Tile, class Groups>
struct ManyMatrices {
    static constexpr uint32_t ALL = 0xFFFFFFFF;
    Groups groups;
    int count, N, weights;
    ShareOfLines share;

    __device__ __forceinline__ bool at(int index, ScaledWork& work) const {
        const int columns = tiles_of(N, weights);
        int tiles_before = 0, scales_before = 0;  // of the 32 groups
        for (int first = 0; first < count; first += 32) {
            const int group = first + int(threadIdx.x) % 32;
            int begin = 0, end = 0;
            if (group < count) groups.find(group, begin, end);
            const int own_tiles = tiles_of(end - begin, Tile::TOKENS) * columns, own_scales = groups.scale_tiles(end - begin);
            const int tiles = tiles_before + sum_of_lanes_up_to_this(own_tiles);
            const int scales = scales_before + sum_of_lanes_up_to_this(own_scales);
            const uint32_t later = __ballot_sync(ALL, index < tiles);
            if (later == 0) {
                tiles_before = __shfl_sync(ALL, tiles, 31);
                scales_before = __shfl_sync(ALL, scales, 31);
                continue;
            }
            const int owner = __ffs(later) - 1;  // the first whose tiles end after this one
            begin = __shfl_sync(ALL, begin, owner);
            end = __shfl_sync(ALL, end, owner);
            const Banded<BAND_OF_TILES> place(index - __shfl_sync(ALL, tiles - own_tiles, owner),
                                              tiles_of(end - begin, Tile::TOKENS), columns);
            const int within = place.row * Tile::TOKENS;
            work.group = first + owner;
            work.token = work.row = begin + within;
            work.column = place.column * weights;
            work.weight = work.group * N + work.column;
            work.token_scales = __shfl_sync(ALL, scales - own_scales, owner) + within / SCALE_TILE_ROWS;
            work.weight_scales = work.group * tiles_of(N, SCALE_TILE_ROWS) + work.column / SCALE_TILE_ROWS;
            work.rows = min(Tile::TOKENS, end - work.row);
            work.columns = min(weights, N - work.column);
            share.give(work);
            return true;
        }
        return false;
    }
};

// Where a group's rows lie, and how many tiles its scales take.
struct RaggedGroups : OneAfterTheOther {
    __device__ __forceinline__ int scale_tiles(int rows) const { return tiles_of(rows, SCALE_TILE_ROWS); }
};
struct GroupsInPlaces : EachInItsPlace {
    __device__ __forceinline__ int scale_tiles(int) const { return tiles_of(rows, SCALE_TILE_ROWS); }
};

}  // namespace zoo
