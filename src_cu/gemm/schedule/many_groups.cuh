// As GroupedOrder (tile_order.cuh), but down all tiles of a group, without bands, and for tiles of few rows: a decoding step of a mixture of
// experts has 128 or 256 groups, most of them empty, and a CTA that walks along them 32 at a time waits for each step's loads. Here every
// lane has four groups that follow each other:
//
//     lane          0              1                  31
//     groups        0  1  2  3     4  5  6  7   ...   124  125  126  127        a step
//
// TOGETHER CTAs that follow each other are given the same.
#pragma once

#include "gemm/schedule/tile_order.cuh"

namespace zoo {

template <class Tile, class Groups, int TOGETHER = 1>
struct ManyGroupsOrder {
    static constexpr bool OF_WARPS = true;
    static constexpr uint32_t ALL = 0xFFFFFFFF;
    static constexpr int EACH = 4, STEP = 32 * EACH;

    Groups groups;
    int count, columns, blocks;
    int index = blockIdx.x / TOGETHER;
    int first_group = -STEP, end_index = 0;  // of a step's groups; their tiles end there
    int begin, ends[EACH];                   // the rows of this lane's groups
    int first_index, end_indices[EACH];      // their tiles

    __device__ __forceinline__ ManyGroupsOrder(Groups groups, int count, int N, int blocks)
        : groups(groups), count(count), columns(tiles_of(N, Tile::WEIGHTS)), blocks(blocks) {}

    // As if all groups were one of so many rows, which has been found.
    __device__ __forceinline__ void find_one(int rows) {
        first_group = begin = first_index = 0;
        end_index = tiles_of(rows, Tile::TOKENS) * columns;
#pragma unroll
        for (int i = 0; i < EACH; i++) ends[i] = rows, end_indices[i] = end_index;
    }

    __device__ __forceinline__ bool next(Work& work) {
        while (index >= end_index) {
            first_group += STEP;
            if (first_group >= count) return false;
            find_groups();
        }
        const int owner =
            __ffs(__ballot_sync(ALL, index < end_indices[EACH - 1])) - 1;  // the first whose tiles end after this one
        int own = 0, own_begin = begin, own_end = ends[0], own_first = first_index;
#pragma unroll
        for (int i = 1; i < EACH; i++)
            if (index >= end_indices[i - 1]) own = i, own_begin = ends[i - 1], own_end = ends[i], own_first = end_indices[i - 1];
        const int group = first_group + owner * EACH + __shfl_sync(ALL, own, owner);
        const int first_row = begin_of(group, __shfl_sync(ALL, own_begin, owner)), end_row = __shfl_sync(ALL, own_end, owner);
        const int rows = tiles_of(end_row - first_row, Tile::TOKENS);  // of tiles
        const uint32_t within = index - __shfl_sync(ALL, own_first, owner), column = within / uint32_t(rows);
        work = {first_row + int(within - column * rows) * Tile::TOKENS, int(column) * Tile::WEIGHTS, end_row, group, 0, blocks};
        index += gridDim.x / TOGETHER;
        return true;
    }

   private:
    // Groups lie in places of as many rows, of which each uses the first, or all where nobody says how many; or, where a place has no rows, one
    // after the other, and what is said are their ends.
    __device__ __forceinline__ int begin_of(int group, int end_of_previous) const {
        return groups.rows == 0 ? end_of_previous : group * groups.rows;
    }
    __device__ __forceinline__ int end_of(int group) const {
        return group * groups.rows + (groups.places != nullptr ? groups.places[group] : groups.rows);
    }

    // All loads are under way before any is waited for. A group that does not exist has no tiles, whatever rows it has.
    __device__ __forceinline__ void find_groups() {
        const int first = first_group + threadIdx.x % 32 * EACH;
        int tiles = 0;
        begin = first > 0 && groups.rows == 0 ? end_of(min(first, count) - 1) : first * groups.rows;
#pragma unroll
        for (int i = 0; i < EACH; i++) ends[i] = end_of(min(first + i, count - 1));
#pragma unroll
        for (int i = 0; i < EACH; i++) {
            const int first_row = begin_of(first + i, i == 0 ? begin : ends[i - 1]);
            if (first + i < count) tiles += tiles_of(ends[i] - first_row, Tile::TOKENS) * columns;
            end_indices[i] = tiles;
        }
        first_index = end_index + sum_of_lanes_up_to_this(tiles) - tiles;
#pragma unroll
        for (int i = 0; i < EACH; i++) end_indices[i] += first_index;
        end_index = __shfl_sync(ALL, end_indices[EACH - 1], 31);
    }
};

// Tiles of eight rows are for groups of a few, which may be many; the others have no registers to spare, and take so long that it matters little.
// Orders for clusters alone (four_bit/gated_order.cuh) do not ask.
template <class Tile, int TOKENS, int BAND, class Groups>
using OrderOfFewOrManyGroups = std::conditional_t<(TOKENS <= 8), ManyGroupsOrder<Tile, Groups>, GroupedOrder<Tile, BAND, Groups>>;

}  // namespace zoo
