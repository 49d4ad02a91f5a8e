// Groups divide K, and each group has a D (M, N) of its own: weight gradients. k_grouped.cu includes it.
//
// Groups begin at multiples of 128 of K. After a group's last element, operands are zero up to there. Each group's scales are a blocked
// matrix of their own:
//
//     K           |   group 0   .......|  group 1  |                 group 2                 .......|  no group
//     K blocks    |     0     |     1     |     2     of FP4, 256 elements each: the first begins where the group begins
//     scales      | tiles of group 0, row after row of scale tiles | of group 1 | of group 2
#pragma once

#include "gemm/blackwell/load/blocked_scales.cuh"

namespace zoo {

constexpr int GROUP_UNIT = 128;  // of K

template <class Tile>
struct KGroupedTiles {
    using Format = typename Tile::Format;
    static constexpr int BYTE_ELEMENTS = Format::K_BLOCK_ELEMENTS / K_BLOCK_BYTES;
    const int* ends;
    int count, M, N, weights;
    bool skips_empty;  // groups without columns of K have no tiles: a walk in strides would end there

    __device__ __forceinline__ bool at(int index, TileWork& work) const {
        const int rows = ceil_div(M, Tile::TOKENS), columns = ceil_div(N, weights), group = index / (rows * columns);
        if (group >= count) return false;
        const int elements = size_of(group);
        if (skips_empty && elements == 0) return false;
        int units_before = 0;
        for (int before = int(threadIdx.x) % 32; before < group; before += 32)
            units_before += ceil_div(size_of(before), GROUP_UNIT);
        const BandedTile<BAND> banded(index % (rows * columns), rows, columns);
        work.group = group;
        work.elements = elements;
        work.token = work.row = banded.row * Tile::TOKENS;
        work.weight = work.column = banded.column * weights;
        work.token_scales = work.token / SCALE_TILE_ROWS;
        work.weight_scales = work.weight / SCALE_TILE_ROWS;
        work.rows = min(Tile::TOKENS, M - work.row);
        work.columns = min(weights, N - work.column);
        work.first_block = 0;
        work.end_block = ceil_div(elements, Format::K_BLOCK_ELEMENTS);
        work.first_byte = __reduce_add_sync(0xFFFFFFFF, units_before) * (GROUP_UNIT / BYTE_ELEMENTS);
        return true;
    }

   private:
    __device__ __forceinline__ int size_of(int group) const { return ends[group] - (group > 0 ? ends[group - 1] : 0); }
};

// The scales of all groups. of(work) returns its group's.
template <class Tile>
struct KGroupedScales {
    using Format = typename Tile::Format;
    static constexpr int UNIT_TILES = GROUP_UNIT / Format::SCALE_BLOCK / SCALE_TILE_COLUMNS;
    const TensorMap& map;
    const uint8_t* first;
    int tile_rows;

    __device__ __forceinline__ BlockedScales of(const TileWork& work) const {
        const int units_before = work.first_byte / (GROUP_UNIT / KGroupedTiles<Tile>::BYTE_ELEMENTS);
        return {map,
                first,
                ceil_div(work.elements, Format::SCALE_BLOCK),
                ceil_div(work.elements, GROUP_UNIT) * UNIT_TILES,
                tile_rows,
                units_before * UNIT_TILES * tile_rows};
    }
};

}  // namespace zoo
