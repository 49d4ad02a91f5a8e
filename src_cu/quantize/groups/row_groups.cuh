// Groups of rows, back to back in x, and how far the padding before a row moves it. Included by groups/fill_padding.cuh and
// groups/grouped_rows.cuh.
//
// `offsets` (G) holds the groups' cumulative end rows. Padded to multiples of 128, the groups are in a space of round_up(M,
// 128) + 128 G rows, which suffices for any sizes. The tail is the rows that no group reaches: whole tiles of 128 rows.
// P(r) is the padding of all groups that end at or before row r of x:
//
//    row r of x                    goes to row r + P(r)
//    the last tile of group g      ends at offsets[g] + P(offsets[g]), with the group's padding at its end
//    the tail                      begins at offsets[G-1] + P(offsets[G-1])
//
// So a warp starts from rows of x and needs no prefix sum to find its group: P is a masked sum, which lanes compute side by
// side. Rows of x after the last group also go to r + P(r): they are zeros of the tail. All other zeros are 128 rows a
// group, and the rows that M lacks to a multiple of 128. Other CTAs write these (groups/fill_padding.cuh).
#pragma once

#include <climits>
#include <cstdint>

#include "common/global_memory.cuh"

namespace zoo {

constexpr int GROUP_ALIGNMENT = 128;

// The groups of a call. If `index` is not null, row r of the result is row index[r] of x, or zeros if index[r] is -1.
struct RowGroups {
    const int32_t* offsets;
    const int32_t* index;
    int M, count;

    // Rows of a padded q, and rows of blocked scales (whole tiles).
    __device__ __forceinline__ int padded_q_rows() const { return M + GROUP_ALIGNMENT * count; }
    __device__ __forceinline__ int all_rows() const {
        return (padded_q_rows() + GROUP_ALIGNMENT - 1) / GROUP_ALIGNMENT * GROUP_ALIGNMENT;
    }

    __device__ __forceinline__ int begin(int group) const { return group == 0 ? 0 : load_int(offsets + group - 1); }
    __device__ __forceinline__ int end(int group) const { return load_int(offsets + group); }
};

// The rows of a group.
struct Group {
    int begin, end;

    __device__ __forceinline__ int padding() const { return (begin - end) & (GROUP_ALIGNMENT - 1); }
};

// Group `number`, or a group that begins and ends after all rows if there is no such group.
__device__ __forceinline__ Group group_at(const RowGroups& groups, int number) {
    Group group = {INT_MAX, INT_MAX};
    if (number < groups.count) group = {groups.begin(number), groups.end(number)};
    return group;
}

// The padding of the groups that end at or before a row, and the number of these groups.
struct PaddingBefore {
    int padding, groups;
};

// A lane's part of PaddingBefore for the share's first row, and whether a group ends in the `rows_more` rows after that
// row.
struct LanePaddingBefore {
    PaddingBefore before = {0, 0};
    bool ends_inside = false;

    __device__ __forceinline__ LanePaddingBefore(const RowGroups& groups, int lane, int first_row, uint32_t rows_more) {
        constexpr int BATCH = 4;  // loads in flight together
#pragma unroll 1
        for (int first = 0; first < groups.count; first += 32 * BATCH) {
            Group batch[BATCH];
            batch[0] = group_at(groups, first + lane);
#pragma unroll
            for (int i = 1; i < BATCH; i++) batch[i] = {INT_MAX, INT_MAX};
            if (first + 32 < groups.count) {
#pragma unroll
                for (int i = 1; i < BATCH; i++) batch[i] = group_at(groups, first + 32 * i + lane);
            }
#pragma unroll
            for (int i = 0; i < BATCH; i++) {
                if (batch[i].end <= first_row) before.padding += batch[i].padding(), before.groups++;
                ends_inside |= uint32_t(batch[i].end - first_row - 1) < rows_more;
            }
        }
    }
    __device__ __forceinline__ LanePaddingBefore() {}
};

// Adds the groups that end after the share's first row and at or before the lane's rows. Called by a whole warp.
template <int COUNT>
__device__ __forceinline__ void add_inside(const RowGroups& all, int lane, int first_row, uint32_t rows_more,
                                           const int (&rows)[COUNT], PaddingBefore (&before)[COUNT]) {
#pragma unroll 1
    for (int first = 0; first < all.count; first += 32) {
        const Group own = group_at(all, first + lane);
        uint32_t inside = __ballot_sync(0xFFFFFFFF, uint32_t(own.end - first_row - 1) < rows_more);
#pragma unroll 1
        for (; inside != 0; inside &= inside - 1) {
            const int owner = __ffs(inside) - 1;
            const int end = __shfl_sync(0xFFFFFFFF, own.end, owner), padding = __shfl_sync(0xFFFFFFFF, own.padding(), owner);
#pragma unroll
            for (int s = 0; s < COUNT; s++)
                if (end <= rows[s]) before[s].padding += padding, before[s].groups++;
        }
    }
}

}  // namespace zoo
