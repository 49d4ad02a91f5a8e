// The grouping of kernels/cols_experts.cu: x, q and the scales are stacks of matrices of one shape. Included by that
// kernel.
//
// The tiles of a matrix follow those of the matrix before. Tensor maps have three dimensions, so no box reaches into the
// next matrix.
#pragma once

#include <cstdint>

#include "common/tensor_copy.cuh"
#include "common/variant.cuh"
#include "quantize/columns/column_results.cuh"

namespace zoo {

template <class Format, class Tile>
struct ExpertMatrices {
    using Scale = typename Format::Scale;
    static constexpr int BLOCK = Format::BLOCK;
    static constexpr bool BLANKS_TAIL = false, STORES_PADDING = false;

    Scale* scales;
    int64_t scales_stride, scales_matrix, q_matrix;  // the last two: from one matrix to the next
    int64_t N, tensor_scale_step;

    __device__ __forceinline__ TileAssignment<Scale> assign(Layout, uint32_t tile, uint64_t) const {
        const uint32_t tiles = (N + Tile::ROWS - 1) / Tile::ROWS, blocks = (N + BLOCK - 1) / BLOCK;
        const int matrix = tile / tiles, row = tile % tiles * Tile::ROWS;
        return {matrix,
                row,
                int(min(N - row, int64_t(Tile::ROWS))),
                row,
                {scales + matrix * scales_matrix, scales_stride, blocks, uint32_t(row) / BLOCK}};
    }
    __device__ __forceinline__ int64_t tensor_scale_index(int matrix) const { return matrix * tensor_scale_step; }
    template <class Cols>
    __device__ __forceinline__ void store(const Cols& cols, const TensorMap& map, uint8_t* q, int64_t q_stride, int column,
                                          int64_t K, const TileAssignment<Scale>& assignment) const {
        cols.store(MatrixOfMap{map, assignment.group}, q + assignment.group * q_matrix, q_stride, column, K, assignment.element,
                   N);
    }
};

}  // namespace zoo
