// The grouping `experts` of the direction `cols`: x is matrices of one shape, and so are q and the scales. Tiles of all
// follow each other; tensor maps have three dimensions, so no box reaches into the next matrix.
#pragma once

#include <cstdint>

#include "common/tensor_copy.cuh"
#include "common/variant.cuh"
#include "quantize/cols.cuh"

namespace zoo {

template <class Format, class Tile>
struct Experts {
    using Scale = typename Format::Scale;
    static constexpr int BLOCK = Format::BLOCK;
    static constexpr bool ROWS_FOLLOW = false;     // after a matrix's last one come zeros
    static constexpr bool STORES_PADDING = false;  // elements of blank rows

    Scale* scales;
    int64_t scales_stride, scales_matrix, q_matrix;  // of matrices, from one to the next
    int64_t N, entry_step;

    __device__ __forceinline__ TilePlace<Scale> place(Layout, uint32_t tile, uint64_t) const {
        const uint32_t tiles = (N + Tile::ROWS - 1) / Tile::ROWS, blocks = (N + BLOCK - 1) / BLOCK;
        const int matrix = tile / tiles, row = tile % tiles * Tile::ROWS;
        return {matrix,
                row,
                int(min(N - row, int64_t(Tile::ROWS))),
                row,
                {scales + matrix * scales_matrix, scales_stride, blocks, uint32_t(row) / BLOCK}};
    }
    __device__ __forceinline__ int64_t entry(int matrix) const { return matrix * entry_step; }
    template <class Cols>
    __device__ __forceinline__ void store(const Cols& cols, const TensorMap& map, uint8_t* q, int64_t q_stride, int column,
                                          int64_t K, const TilePlace<Scale>& place) const {
        cols.store(MatrixOfMap{map, place.group}, q + place.group * q_matrix, q_stride, column, K, place.element, N);
    }
};

}  // namespace zoo
