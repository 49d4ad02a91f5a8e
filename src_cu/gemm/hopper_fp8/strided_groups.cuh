// Groups whose matrices of A and D have strides of their own from group to group, while groups.cu needs slots one after the other. So heads of
// attention are multiplied where they are. Included by kernels/strided_groups.cu.
//
//     A (tokens, heads, K), a group for each head      a_stride: from token to token, a_group: from head to head
//
//     token 0   head 0 | head 1 | ...                  D (tokens, heads, N) alike
//     token 1   head 0 | head 1 | ...
//
// Schedules and row_scale count rows as if slots followed each other: row r of group g is g * slot_rows + r.
#pragma once

#include <cstdint>

#include "common/tensor_copy.cuh"
#include "gemm/hopper_fp8/store_reduced.cuh"
#include "gemm/hopper_fp8/store_rows.cuh"
#include "gemm/hopper_fp8/operands.cuh"

namespace zoo {

// The map of A has a matrix for each group, so no box reaches into another group.
template <class Tile>
struct StridedGroupOperands : Operands<Tile> {
    __device__ __forceinline__ void load_tokens(Tile& tile, int stage, const Work& work, int block) const {
        load_box(tile.tokens[stage], MatrixOfMap{this->a, work.group}, block * SCALE_BLOCK,
                 work.token - work.group * this->tokens, &tile.full[stage]);
    }
};

template <class D>
struct StridedGroupOutput {
    OutputMatrix<D> first;
    int64_t group_stride;  // in elements
    int slot_rows;
    const float* row_scale;  // may be null

    __device__ __forceinline__ ScaleRows<OutputMatrix<D>> of(int group) const {
        OutputMatrix<D> matrix = first;
        matrix.first += group * (group_stride - slot_rows * matrix.stride) * ELEMENT_BYTES<D>;
        return {matrix, row_scale};
    }
};

template <class D, int SUMS>
__device__ __forceinline__ void store(const StridedGroupOutput<D>& d, RowBuffer& buffer, const Work& work, int row,
                                      float (&sums)[SUMS]) {
    store(d.of(work.group), buffer, work, row, sums);
}

template <int SPLITS, int THREADS, class Tile, class D>
__device__ __forceinline__ void reduce_and_store(const SumsInShared<Tile>& shared_sums, const StridedGroupOutput<D>& d,
                                                 const Work& work) {
    reduce_and_store<SPLITS, THREADS>(shared_sums, d.of(work.group), work);
}

}  // namespace zoo
