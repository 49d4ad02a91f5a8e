// Groups that lie along K, as weight gradients contract them, each with a D (M, N) of its own. Groups begin at multiples of 128 of K,
// and what follows a group's last element is zero up to there; each group's scales are a blocked matrix of their own:
//
//     K          |   group 0   .......|  group 1  |                 group 2                 .......|  nobody's
//     lines      |     0     |     1     |     2     of FP4, 256 elements each: they begin where the group does
//     scales     | tiles of group 0, row after row of tiles | of group 1 | of group 2
#pragma once

#include "gemm/block_scaled/load.cuh"
#include "gemm/block_scaled/order.cuh"

namespace zoo {

constexpr int GROUP_UNIT = 128;  // of K

template <class Tile>
struct MatricesAlongK {
    using Kind = typename Tile::Kind;
    static constexpr int ELEMENTS_A_BYTE = Kind::ELEMENTS_A_LINE / LINE_BYTES;
    const int* ends;
    int count, M, N, weights;
    bool leaves_empty;  // no tiles of groups without elements

    __device__ __forceinline__ bool at(int index, ScaledWork& work) const {
        const int rows = tiles_of(M, Tile::TOKENS), columns = tiles_of(N, weights), group = index / (rows * columns);
        if (group >= count) return false;
        const int elements = size_of(group);
        if (leaves_empty && elements == 0) return false;
        int units_before = 0;
        for (int before = int(threadIdx.x) % 32; before < group; before += 32)
            units_before += tiles_of(size_of(before), GROUP_UNIT);
        const Banded<BAND_OF_TILES> place(index % (rows * columns), rows, columns);
        work.group = group;
        work.elements = elements;
        work.token = work.row = place.row * Tile::TOKENS;
        work.weight = work.column = place.column * weights;
        work.token_scales = work.token / SCALE_TILE_ROWS;
        work.weight_scales = work.weight / SCALE_TILE_ROWS;
        work.rows = min(Tile::TOKENS, M - work.row);
        work.columns = min(weights, N - work.column);
        work.first_line = 0;
        work.end_line = tiles_of(elements, Kind::ELEMENTS_A_LINE);
        work.first_byte = __reduce_add_sync(0xFFFFFFFF, units_before) * (GROUP_UNIT / ELEMENTS_A_BYTE);
        return true;
    }

   private:
    __device__ __forceinline__ int size_of(int group) const { return ends[group] - (group > 0 ? ends[group - 1] : 0); }
};

// Scales of all groups, one after the other.
template <class Tile>
struct BlockedScalesAlongK {
    using Kind = typename Tile::Kind;
    static constexpr int TILES_OF_A_UNIT = GROUP_UNIT / Kind::ELEMENTS_A_SCALE / SCALES_A_TILE_ROW;
    const TensorMap& map;
    const uint8_t* first;
    int rows_of_tiles;

    __device__ __forceinline__ BlockedScales of(const ScaledWork& work) const {
        const int units_before = work.first_byte / (GROUP_UNIT / MatricesAlongK<Tile>::ELEMENTS_A_BYTE);
        return {map,
                first,
                tiles_of(work.elements, Kind::ELEMENTS_A_SCALE),
                tiles_of(work.elements, GROUP_UNIT) * TILES_OF_A_UNIT,
                rows_of_tiles,
                units_before * TILES_OF_A_UNIT * rows_of_tiles};
    }
};

}  // namespace zoo
