// Padded groups: each begins at a multiple of 128 rows of q and of the scales. Included by kernels that quantise columns of groups.
//
// Padding rows and all rows after the last group are stored as zeros. Tiles follow each other in the output:
//
//   x, rows      |  group 0   |   group 1    |g2|
//   q, tiles     |   0   |   1   |   2   |   3   |   4   | ...      a tile has 128 rows of one group, or zeros
#pragma once

#include <cstdint>

#include "common/tensor_copy.cuh"
#include "common/variant.cuh"
#include "quantize/columns/column_results.cuh"
#include "quantize/groups/tile_groups.cuh"

namespace zoo {

template <class Traits, class Tile>
struct PaddedGroups : ColumnGroups<typename Traits::Type::Scale> {
    using Format = typename Traits::Type;
    using Scale = typename Format::Scale;
    static constexpr bool BLANKS_TAIL = true, STORES_PADDING = true;
    static constexpr int BLOCK = Format::BLOCK, TILE_BLOCKS = Tile::ROWS / BLOCK;
    static_assert(Tile::ROWS == 128, "what groups are padded to");

    __device__ __forceinline__ int64_t length() const { return this->M + 128 * this->groups; }

    __device__ __forceinline__ TileAssignment<Scale> assign(Layout layout, uint32_t tile, uint64_t columns) const {
        const TileGroup found = group_of_tile<Tile::ROWS>(this->offsets, this->groups, tile, [](int) { return 0u; });
        const int first = (tile - found.tiles) * Tile::ROWS, row = found.start + first;
        const int rows = max(min(found.end - row, Tile::ROWS), 0);
        const uint32_t all = (length() + BLOCK - 1) / BLOCK;
        if (layout != Layout::blocked)
            return {found.group, row, rows, int(tile * Tile::ROWS), {this->scales, this->scales_stride, all, tile * TILE_BLOCKS}};
        const uint32_t before = found.tiles * TILE_BLOCKS;
        const uint32_t tiles = (found.end - found.start + Tile::ROWS - 1) / Tile::ROWS;
        const uint32_t blocks = found.group == this->groups ? whole_scale_tiles(all) - before : tiles * TILE_BLOCKS;
        return {found.group,
                row,
                rows,
                int(tile * Tile::ROWS),
                {this->scales + columns * before, int64_t(blocks) * 128, blocks, uint32_t(first) / BLOCK}};
    }

    template <class Cols>
    __device__ __forceinline__ void store(const Cols& cols, const TensorMap& map, uint8_t* q, int64_t q_stride, int column,
                                          int64_t K, const TileAssignment<Scale>& assignment) const {
        cols.store(map, q, q_stride, column, K, assignment.element, length());
    }
};

// Stores where padded groups begin and end. Called by one warp.
__device__ __forceinline__ void store_padded_bounds(const int* offsets, int groups, int* starts, int* ends) {
    const int lane = threadIdx.x % 32;
    int done = 0;
#pragma unroll 1
    for (int first = 0; first < groups; first += 32) {
        const int group = first + lane, at = min(group, groups - 1);
        const int rows = offsets[at] - (at == 0 ? 0 : offsets[at - 1]);
        const int padded = group < groups ? (rows + 127) / 128 * 128 : 0;
        const int end = done + warp_sums(padded, lane);
        if (group < groups) {
            starts[group] = end - padded;
            ends[group] = end;
        }
        done = __shfl_sync(0xFFFFFFFF, end, 31);
    }
}

}  // namespace zoo
