// SwiGLU with fp8b128: which rows of B a tile multiplies, and where their scales are. Kernels of fp8b128 with SwiGLU include it.
//
// B has I gates and I ups. In halves, I is a multiple of 64. If it is an odd multiple, 128 neighbouring ups have two scales:
//
//     rows of B      | gates 0..63 | 64..127 | 128..191 || ups 0..63 | 64..127 | 128..191 |       I = 192
//     scales of B    |          0            |          1            |          2         |
//
// A tile has 128 columns of the result, a scale block. It multiplies 256 rows of B: 128 gates and 128 ups, or fewer, and then rows that do not
// count. A SWAPPED tile is two products of 128 rows.
#pragma once

#include "gemm/blackwell/fp8b128/scales.cuh"
#include "gemm/blackwell/pipeline.cuh"

namespace zoo {

constexpr int RESULT_BLOCK = 128;

// Rows of a group's B.
struct GateRows {
    int I;
    bool interleaved;

    __device__ __forceinline__ int first(int column) const { return interleaved ? 2 * column : column; }
    __device__ __forceinline__ int step() const { return interleaved ? RESULT_BLOCK : I; }  // to the tile's other 128 rows
};

// The works of tiles of the result. `tiles` finds each tile as if B had I rows.
template <class Tile, class Tiles>
struct Fp8b128GatedTiles {
    Tiles tiles;
    GateRows rows;
};

template <class Tile, class Tiles, class What>
__device__ __forceinline__ bool for_each_work(Fp8b128GatedTiles<Tile, Tiles>& gated, int index, What what) {
    return for_each_work(gated.tiles, index, [&](TileWork work) {
        const GateRows& rows = gated.rows;
        work.weight = 2 * work.group * rows.I + rows.first(work.column);
        work.columns = Tile::SWAPPED ? LANES : rows.interleaved ? 2 * work.columns : 2 * RESULT_BLOCK;
        constexpr int PRODUCTS = Tile::SWAPPED ? 2 : 1;
#pragma unroll 1
        for (int i = 0; i < PRODUCTS; i++) {
            what(work);
            work.weight += rows.step();
        }
    });
}

// Weights have a scale for each 64 rows.
struct GatedScales : SequentialTokenScales {
    static constexpr int WEIGHT_SCALES = 2;
    GateRows gates;

    __device__ __forceinline__ GatedScales(int slot_rows, GateRows gates) : SequentialTokenScales(slot_rows), gates(gates) {}
    __device__ __forceinline__ int64_t weight_offset(const ScaleMatrix& scales, const TileWork& work, int row) const {
        const int first = work.weight - 2 * work.group * gates.I;  // of the group's B
        const int b_row = first + row / SCALE_TILE_ROWS * gates.step() + row % SCALE_TILE_ROWS;
        return work.group * scales.group + int64_t(min(b_row, 2 * gates.I - 1) / SCALE_TILE_ROWS) * scales.row;
    }
};

}  // namespace zoo
