// Where tile `index` of a GEMM with groups of rows is: each group of rows of A is multiplied by a B of its own. All GEMMs with such groups
// include it.
//
//     GroupedTiles    tiles begin where groups begin. A step of the walk along groups looks at 32 groups, one in each lane
//     IndexedTiles    tiles of the whole matrix. m_indices give each row's group, and a tile has a work for each group in it
#pragma once

#include "common/warp.cuh"
#include "gemm/blackwell/schedule/tiles.cuh"

namespace zoo {

// GROUPING of a table. m_indices: contiguous groups by the group of each row.
enum class Grouping { dense, m_grouped_contiguous, m_grouped_masked, m_indices };

// Groups follow each other: `ends` holds the row after each group's last. scale_tiles(): how many scale tiles the rows of a group have.
struct ContiguousGroups {
    const int* ends;

    __device__ __forceinline__ void find(int group, int& begin, int& end) const {
        begin = group > 0 ? ends[group - 1] : 0;
        end = ends[group];
    }
    __device__ __forceinline__ static ContiguousGroups of(const int* ends, int) { return {ends}; }
    __device__ __forceinline__ int scale_tiles(int rows) const { return ceil_div(rows, SCALE_TILE_ROWS); }
};

// Each group has a slot of `rows` rows, and uses the first `counts[group]` of them.
struct MaskedGroups {
    const int* counts;
    int rows;

    __device__ __forceinline__ void find(int group, int& begin, int& end) const {
        begin = group * rows;
        end = begin + counts[group];
    }
    __device__ __forceinline__ static MaskedGroups of(const int* counts, int rows) { return {counts, rows}; }
    __device__ __forceinline__ int scale_tiles(int) const { return ceil_div(rows, SCALE_TILE_ROWS); }
};

// The walk goes on where the previous tile was: with several groups, indices grow from call to call.
template <class Tile, class Groups>
struct GroupedTiles {
    static constexpr uint32_t ALL = 0xFFFFFFFF;
    Groups groups;
    int count, N, weights;  // groups; rows of each B; columns of D in a tile
    KShare share;

    struct Counts {
        int tiles, scale_tiles;
    };
    int first = -32;                          // of the 32 groups; -32 before the first step
    int begin = 0, end = 0;                   // rows of this lane's group
    Counts before = {}, own = {}, past = {};  // tiles before the 32 groups; of this lane's group; up to its end

    __device__ __forceinline__ bool at(int index, TileWork& work) {
        const int columns = ceil_div(N, weights);
        uint32_t later = first < 0 ? 0 : __ballot_sync(ALL, index < past.tiles);
        while (later == 0) {
            if (first + 32 >= count) return false;
            before = {first < 0 ? 0 : __shfl_sync(ALL, past.tiles, 31), first < 0 ? 0 : __shfl_sync(ALL, past.scale_tiles, 31)};
            first += 32;
            const int group = first + int(threadIdx.x) % 32;
            begin = end = 0;
            if (group < count) groups.find(group, begin, end);
            own = {ceil_div(end - begin, Tile::TOKENS) * columns, groups.scale_tiles(end - begin)};
            past = {before.tiles + sum_of_lanes_up_to_this(own.tiles),
                    before.scale_tiles + sum_of_lanes_up_to_this(own.scale_tiles)};
            later = __ballot_sync(ALL, index < past.tiles);
        }
        const int owner = __ffs(later) - 1;  // the lane whose group has tile `index`
        const int first_row = __shfl_sync(ALL, begin, owner), end_row = __shfl_sync(ALL, end, owner);
        const BandedTile<BAND> banded(index - __shfl_sync(ALL, past.tiles - own.tiles, owner),
                                      ceil_div(end_row - first_row, Tile::TOKENS), columns);
        const int within = banded.row * Tile::TOKENS;
        work.group = first + owner;
        work.token = work.row = first_row + within;
        work.column = banded.column * weights;
        work.weight = work.group * N + work.column;
        work.token_scales = __shfl_sync(ALL, past.scale_tiles - own.scale_tiles, owner) + within / SCALE_TILE_ROWS;
        work.weight_scales = work.group * ceil_div(N, SCALE_TILE_ROWS) + work.column / SCALE_TILE_ROWS;
        work.rows = min(Tile::TOKENS, end_row - work.row);
        work.columns = min(weights, N - work.column);
        share.assign_to(work);
        return true;
    }
};

// `group_of` holds each row's group, or -1. The rows of a group are neighbours. A tile of rows is one work for each group in it.
template <class Tile>
struct IndexedTiles {
    static constexpr uint32_t ALL = 0xFFFFFFFF;
    const int* group_of;
    int M, N, weights, blocks;

    // A whole warp calls this. Lanes may diverge in `what`, so they meet before the next look at the rows.
    template <class What>
    __device__ __forceinline__ bool each(int index, What what) const {
        const int rows = ceil_div(M, Tile::TOKENS), columns = ceil_div(N, weights);
        if (index >= rows * columns) return false;
        const BandedTile<BAND> banded(index, rows, columns);
        const int end = min((banded.row + 1) * Tile::TOKENS, M);
        int row = banded.row * Tile::TOKENS;
        while (true) {
            row = first_row(row, end, [](int group) { return group >= 0; });
            if (row >= end) return true;
            TileWork work = {};
            work.group = group_of[row];
            work.token = work.row = row;
            row = first_row(row, end, [&](int group) { return group != work.group; });
            work.column = banded.column * weights;
            work.weight = work.group * N + work.column;
            work.rows = row - work.row;
            work.columns = min(weights, N - work.column);
            work.end_block = blocks;
            what(work);
            __syncwarp();
        }
    }

   private:
    // The first row from `row` on whose group satisfies `is`, or end.
    template <class Is>
    __device__ __forceinline__ int first_row(int row, int end, Is is) const {
        for (; row < end; row += 32) {
            const int own = row + int(threadIdx.x) % 32;
            const uint32_t found = __ballot_sync(ALL, own < end && is(group_of[own]));
            if (found != 0) return row + __ffs(found) - 1;
        }
        return end;
    }
};

template <class Tile, class What>
__device__ __forceinline__ bool for_each_work(IndexedTiles<Tile>& tiles, int index, What what) {
    return tiles.each(index, what);
}

}  // namespace zoo
