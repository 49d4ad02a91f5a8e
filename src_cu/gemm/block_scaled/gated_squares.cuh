// Gates and ups of weights that have a scale for 128 x 128: scales_by_hand.cuh. I of each; in halves I is a multiple of 64, and where it
// is an odd one, 128 neighbouring ups have two scales:
//
//     rows of B      | gates 0..63 | 64..127 | 128..191 || ups 0..63 | 64..127 | 128..191 |       I = 192
//     scales of B    |          0            |          1            |          2         |
//
// A tile has 128 columns of the result, a block of it, which take 256 rows of B: gates and ups beside each other, or what is left of them
// followed by rows that are others'. Tokens as columns: 128 of those rows, then the others, a product each.
#pragma once

#include "gemm/block_scaled/indexed.cuh"
#include "gemm/block_scaled/order.cuh"
#include "gemm/block_scaled/scales_by_hand.cuh"

namespace zoo {

constexpr int BLOCK_OF_RESULT = 128;

// Which rows of its group's B the two products of 128 rows that a tile takes have.
struct GateRows {
    int I;
    bool interleaved;

    __device__ __forceinline__ int first(int column) const { return interleaved ? 2 * column : column; }
    __device__ __forceinline__ int step() const { return interleaved ? BLOCK_OF_RESULT : I; }
};

// `work` of a tile of I columns: as a product of rows of B.
template <class Tile>
__device__ __forceinline__ void take_gates(const GateRows& rows, ScaledWork& work) {
    work.weight = 2 * work.group * rows.I + rows.first(work.column);
    work.columns = Tile::SWAPPED ? LANES : rows.interleaved ? 2 * work.columns : 2 * BLOCK_OF_RESULT;
}

// An order of tiles of the result, as if B had I rows.
template <class Tile, class Order>
struct GatedSquares {
    Order order;
    GateRows rows;
};

template <class Tile, class Order, class What>
__device__ __forceinline__ void each_work(GatedSquares<Tile, Order>& gated, int index, What what) {
    each_work(gated.order, index, [&](ScaledWork work) {
        take_gates<Tile>(gated.rows, work);
        constexpr int PRODUCTS = Tile::SWAPPED ? 2 : 1;
#pragma unroll 1
        for (int i = 0; i < PRODUCTS; i++) {
            what(work);
            work.weight += gated.rows.step();
        }
    });
}

// Row `token` of a tile as it lies; of weights a scale for each 64 rows.
struct RowsOfGates : RowsAsTheyLie {
    static constexpr int SCALES_OF_WEIGHTS = 2;
    GateRows gates;

    __device__ __forceinline__ RowsOfGates(int rows, GateRows gates) : RowsAsTheyLie(rows), gates(gates) {}
    __device__ __forceinline__ int64_t place_of_weight(const ScaleMatrix& scales, const ScaledWork& work, int row) const {
        const int first = work.weight - 2 * work.group * gates.I;  // of the group's B
        const int of_b = first + row / SCALE_TILE_ROWS * gates.step() + row % SCALE_TILE_ROWS;
        return work.group * scales.group + int64_t(min(of_b, 2 * gates.I - 1) / SCALE_TILE_ROWS) * scales.row;
    }
};

}  // namespace zoo
