// Schedules of grouped GEMMs: every group's rows of A are multiplied by a matrix of weights of its own. CTAs are persistent.
// Tiles begin where groups begin. The host does not have the sizes of groups, so every CTA walks along them.
//
//     GroupedSchedule        a step looks at 32 groups, one in each lane
//     ManyGroupsSchedule     a step looks at 128 groups, four in each lane: decoding steps of a mixture of experts
//     IndexedSchedule        m_indices give each row's group: no walk along groups
//
// Included by grouped GEMMs on Hopper. Blackwell has blackwell/schedule/grouped_tiles.cuh.
#pragma once

#include "common/warp.cuh"
#include "gemm/schedule/tile_schedule.cuh"

namespace zoo {

// Groups follow each other: `ends` holds the row after each group's last.
struct ContiguousGroupRows {
    const int* ends;
    __device__ __forceinline__ void find(int group, int& begin, int& end) const {
        begin = group > 0 ? ends[group - 1] : 0;
        end = ends[group];
    }
};

// Each group has a slot of `rows` rows, and uses the first `counts[group]` of them.
struct MaskedGroupRows {
    const int* counts;
    int rows;
    __device__ __forceinline__ void find(int group, int& begin, int& end) const {
        begin = group * rows;
        end = begin + counts[group];
    }
};

// Masked groups in slots of `rows` rows, or contiguous groups where `rows` is 0: the launch chooses, and one cubin serves both.
struct GroupRows {
    const int* ends_or_counts;
    int rows;

    __device__ __forceinline__ void find(int group, int& begin, int& end) const {
        int slot_rows = rows;
        asm volatile("" : "+r"(slot_rows));  // prevents ptxas from making a loop over groups for each case
        if (slot_rows == 0) return ContiguousGroupRows{ends_or_counts}.find(group, begin, end);
        return MaskedGroupRows{ends_or_counts, slot_rows}.find(group, begin, end);
    }
};

// Finds rows like GroupRows, or all `rows` of a matrix if ends_or_counts is null. If HAS_FEW_REGISTERS, ptxas makes a loop over groups for each of
// the three cases. These loops need more code, but fewer registers.
template <bool HAS_FEW_REGISTERS>
struct GroupRowsOrMatrix {
    const int* ends_or_counts;
    int rows;

    __device__ __forceinline__ void find(int group, int& begin, int& end) const {
        int slot_rows = rows;
        if constexpr (!HAS_FEW_REGISTERS) asm volatile("" : "+r"(slot_rows));
        if (slot_rows == 0) return ContiguousGroupRows{ends_or_counts}.find(group, begin, end);
        begin = group * slot_rows;
        end = begin + (ends_or_counts != nullptr ? ends_or_counts[group] : slot_rows);
    }
};

template <class Tile, int BAND, class Groups>
struct GroupedSchedule {
    static constexpr bool WARP_COLLECTIVE = true;
    static constexpr uint32_t ALL = 0xFFFFFFFF;

    Groups groups;
    int count, columns, blocks;  // groups; tiles along D; K blocks
    int index = blockIdx.x;
    int first_group = -32, end_index = 0;       // of this step's groups: the first, and the index after their last tile
    int begin = 0, end = 0, own_end_index = 0;  // of this lane's group: its rows, and the index after its last tile

    __device__ __forceinline__ GroupedSchedule(Groups groups, int count, int N, int blocks)
        : groups(groups), count(count), columns(ceil_div(N, Tile::WEIGHTS)), blocks(blocks) {}

    __device__ __forceinline__ bool next(Work& work) {
        while (index >= end_index) {
            first_group += 32;
            if (first_group >= count) return false;
            const int group = first_group + threadIdx.x % 32;
            begin = end = 0;
            if (group < count) groups.find(group, begin, end);
            own_end_index = end_index + sum_of_lanes_up_to_this(ceil_div(end - begin, Tile::TOKENS) * columns);
            end_index = __shfl_sync(ALL, own_end_index, 31);
        }
        const int owner = __ffs(__ballot_sync(ALL, index < own_end_index)) - 1;  // the lane whose group has tile `index`
        const int first_row = __shfl_sync(ALL, begin, owner), end_row = __shfl_sync(ALL, end, owner);
        const int rows = ceil_div(end_row - first_row, Tile::TOKENS);  // of tiles
        const int first_index = __shfl_sync(ALL, own_end_index, owner) - rows * columns;
        const BandedTile<BAND> tile(index - first_index, rows, columns);
        work = {first_row + tile.row * Tile::TOKENS, tile.column * Tile::WEIGHTS, end_row, first_group + owner, 0, blocks};
        index += gridDim.x;
        return true;
    }
};

// A decoding step of a mixture of experts has 128 or 256 groups, most of them empty. A CTA that walked along them 32 at a time would wait for
// the loads of each step, so each lane has four neighbouring groups:
//
//     lane          0              1                  31
//     groups        0  1  2  3     4  5  6  7   ...   124  125  126  127        a step
//
// Tiles run down a whole group without bands. If TOGETHER is 2, both CTAs of a pair get the same tile, and divide it.
template <class Tile, class Groups, int TOGETHER = 1>
struct ManyGroupsSchedule {
    static constexpr bool WARP_COLLECTIVE = true;
    static constexpr uint32_t ALL = 0xFFFFFFFF;
    static constexpr int EACH = 4, STEP = 32 * EACH;

    Groups groups;
    int count, columns, blocks;
    int index = blockIdx.x / TOGETHER;
    int first_group = -STEP, end_index = 0;  // of this step's groups: the first, and the index after their last tile
    int begin, ends[EACH];                   // the rows of this lane's groups
    int first_index, end_indices[EACH];      // the tiles of this lane's groups

    __device__ __forceinline__ ManyGroupsSchedule(Groups groups, int count, int N, int blocks)
        : groups(groups), count(count), columns(ceil_div(N, Tile::WEIGHTS)), blocks(blocks) {}

    // Replaces the walk along groups: there is one group, of `rows` rows.
    __device__ __forceinline__ void find_one(int rows) {
        first_group = begin = first_index = 0;
        end_index = ceil_div(rows, Tile::TOKENS) * columns;
#pragma unroll
        for (int i = 0; i < EACH; i++) ends[i] = rows, end_indices[i] = end_index;
    }

    __device__ __forceinline__ bool next(Work& work) {
        while (index >= end_index) {
            first_group += STEP;
            if (first_group >= count) return false;
            find_groups();
        }
        // The lane whose groups have tile `index`.
        const int owner = __ffs(__ballot_sync(ALL, index < end_indices[EACH - 1])) - 1;
        int own = 0, own_begin = begin, own_end = ends[0], own_first = first_index;
#pragma unroll
        for (int i = 1; i < EACH; i++)
            if (index >= end_indices[i - 1]) own = i, own_begin = ends[i - 1], own_end = ends[i], own_first = end_indices[i - 1];
        const int group = first_group + owner * EACH + __shfl_sync(ALL, own, owner);
        const int first_row = begin_of(group, __shfl_sync(ALL, own_begin, owner)), end_row = __shfl_sync(ALL, own_end, owner);
        const int rows = ceil_div(end_row - first_row, Tile::TOKENS);  // of tiles
        const uint32_t within = index - __shfl_sync(ALL, own_first, owner), column = within / uint32_t(rows);
        work = {first_row + int(within - column * rows) * Tile::TOKENS, int(column) * Tile::WEIGHTS, end_row, group, 0, blocks};
        index += gridDim.x / TOGETHER;
        return true;
    }

   private:
    // Groups.rows is 0 where groups are contiguous. Else it is the rows of a slot, which are all used where ends_or_counts is null.
    __device__ __forceinline__ int begin_of(int group, int end_of_previous) const {
        return groups.rows == 0 ? end_of_previous : group * groups.rows;
    }
    __device__ __forceinline__ int end_of(int group) const {
        return group * groups.rows + (groups.ends_or_counts != nullptr ? groups.ends_or_counts[group] : groups.rows);
    }

    // Issues all loads before it waits for the first. Groups from `count` on get no tiles.
    __device__ __forceinline__ void find_groups() {
        const int first = first_group + threadIdx.x % 32 * EACH;
        int tiles = 0;
        begin = first > 0 && groups.rows == 0 ? end_of(min(first, count) - 1) : first * groups.rows;
#pragma unroll
        for (int i = 0; i < EACH; i++) ends[i] = end_of(min(first + i, count - 1));
#pragma unroll
        for (int i = 0; i < EACH; i++) {
            const int first_row = begin_of(first + i, i == 0 ? begin : ends[i - 1]);
            if (first + i < count) tiles += ceil_div(ends[i] - first_row, Tile::TOKENS) * columns;
            end_indices[i] = tiles;
        }
        first_index = end_index + sum_of_lanes_up_to_this(tiles) - tiles;
#pragma unroll
        for (int i = 0; i < EACH; i++) end_indices[i] += first_index;
        end_index = __shfl_sync(ALL, end_indices[EACH - 1], 31);
    }
};

// Tiles of 8 tokens are for small groups, which may be many. Other tiles have no registers to spare, and hide the walk along groups.
template <class Tile, int TOKENS, int BAND, class Groups>
using GroupedScheduleFor =
    std::conditional_t<(TOKENS <= 8), ManyGroupsSchedule<Tile, Groups>, GroupedSchedule<Tile, BAND, Groups>>;

// `group_of` holds each row's group, or -1. The rows of a group are neighbours. A tile of rows is given once for each group in it.
template <class Tile, int BAND>
struct IndexedSchedule {
    const int* group_of;
    int M, rows, columns, blocks;  // tiles down and along D; K blocks
    int index = blockIdx.x;
    int row = 0, end = 0, column = 0;  // the rest of the current tile

    __device__ __forceinline__ IndexedSchedule(const int* group_of, int M, int N, int blocks)
        : group_of(group_of), M(M), rows(ceil_div(M, Tile::TOKENS)), columns(ceil_div(N, Tile::WEIGHTS)), blocks(blocks) {}

    __device__ __forceinline__ bool next(Work& work) {
        skip_rows_without_group();
        while (row == end) {
            if (index >= rows * columns) return false;
            const BandedTile<BAND> tile(index, rows, columns);
            row = tile.row * Tile::TOKENS;
            end = min(row + Tile::TOKENS, M);
            column = tile.column * Tile::WEIGHTS;
            index += gridDim.x;
            skip_rows_without_group();
        }
        const int group = group_of[row], group_end = end_of(group);
        work = {row, column, group_end, group, 0, blocks};
        row = group_end;
        return true;
    }

   private:
    __device__ __forceinline__ void skip_rows_without_group() {
#pragma unroll 8
        for (; row < end && group_of[row] < 0; row++);
    }

    // The row after the group's last, or the tile's end: a binary search.
    __device__ __forceinline__ int end_of(int group) const {
        if (group_of[end - 1] == group) return end;
        int inside = row, outside = end - 1;
        while (outside - inside > 1) {
            const int middle = (inside + outside) / 2;
            (group_of[middle] == group ? inside : outside) = middle;
        }
        return outside;
    }
};

}  // namespace zoo
