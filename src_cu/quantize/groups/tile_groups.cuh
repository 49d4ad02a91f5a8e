// Which group of rows a tile belongs to, for blocks along M. Included by groups/contiguous_columns.cuh and
// groups/padded_columns.cuh.
//
// Blocks and tiles begin at every group: a group of n rows has ceil(n / ROWS) tiles, and rows after its end are blank.
//
//  x, rows      |  group 0   |   group 1    |g2|      rows after the last group       (offsets on the device)
//  tiles        | 0 | 1 | 2  | 3  | 4  | 5  |6 |      all further tiles have no rows
//
// The host does not have the number of tiles, so the grid suffices for any sizes. The first warp of a CTA finds the group of
// its tile.
#pragma once

#include <cstdint>

namespace zoo {

// Rows [start, end) of a group, and the tiles and scales (of a row of q) of all groups before it. Past the last group: no
// rows.
struct TileGroup {
    int group, start, end;
    uint32_t tiles, blocks;
};

// Inclusive sums over the lanes of a warp.
__device__ __forceinline__ uint32_t warp_sums(uint32_t value, int lane) {
#pragma unroll 1
    for (int distance = 1; distance < 32; distance *= 2) {
        const uint32_t below = __shfl_up_sync(0xFFFFFFFF, value, distance);
        if (lane >= distance) value += below;
    }
    return value;
}

// Finds the group of a tile; called by a whole warp. blocks_of(rows) is the number of scales of a group. A lane has a
// 32nd of the groups, so one scan suffices. Each lane sums its groups. A scan adds the lanes before. The lane that has the
// tile walks through its groups.
template <int ROWS, class BlocksOf>
__device__ __forceinline__ TileGroup group_of_tile(const int* offsets, int groups, uint32_t tile, BlocksOf blocks_of) {
    const int lane = threadIdx.x % 32, own = (groups + 31) / 32;
    const int first = min(lane * own, groups), last = min(first + own, groups) - 1;
    const int end = offsets[last];
    const int end_before = __shfl_up_sync(0xFFFFFFFF, end, 1), start = lane == 0 ? 0 : end_before;
    TileGroup at = {first, start, start, 0, 0};  // tiles and blocks of the groups before
    auto advance = [&] {
        at.tiles += uint32_t(at.end - at.start + ROWS - 1) / ROWS;
        at.blocks += blocks_of(at.end - at.start);
        at.start = at.end;
    };
#pragma unroll 1
    for (; at.group <= max(first, last); at.group++) {
        at.end = at.group < last ? offsets[at.group] : end;
        advance();
    }
    const uint32_t tiles_so_far = warp_sums(at.tiles, lane), blocks_so_far = warp_sums(at.blocks, lane);
    const uint32_t past = __ballot_sync(0xFFFFFFFF, tiles_so_far > tile);
    const int owner = past ? __ffs(past) - 1 : 31;
    at = {first, start, start, tiles_so_far - at.tiles, blocks_so_far - at.blocks};
#pragma unroll 1
    while (true) {
        at.end = at.group < last ? offsets[at.group] : end;
        const TileGroup here = at;
        advance();
        if (past && (at.tiles > tile || here.group >= last)) {
            at = here;
            break;
        }
        at.group++;
        if (here.group >= last) {
            at.group = groups;
            break;
        }
    }
    auto from_owner = [&](uint32_t value) { return __shfl_sync(0xFFFFFFFF, value, owner); };
    return {int(from_owner(at.group)), int(from_owner(at.start)), int(from_owner(at.end)), from_owner(at.tiles),
            from_owner(at.blocks)};
}

__device__ __forceinline__ uint32_t whole_scale_tiles(uint32_t blocks) { return (blocks + 3) / 4 * 4; }  // of blocked scales

// What both groupings need. Group g uses entry `g * tensor_scale_step` of the tensor scales (NVFP4).
template <class Scale>
struct ColumnGroups {
    Scale* scales;
    int64_t scales_stride, M;
    const int* offsets;
    int groups;
    int64_t tensor_scale_step;

    __device__ __forceinline__ int64_t tensor_scale_index(int group) const { return min(group, groups - 1) * tensor_scale_step; }
};

}  // namespace zoo
