// How a warp stores the e4m3 elements of its 1024 columns, in plain or fragment order. Included by kernels/rows_blocks.cu and rows_tokens.cu.
#pragma once

#include <cstdint>

#include "common/formats/fp8b128.cuh"
#include "norm/row_threads.cuh"
#include "quantize/rows/matrix.cuh"
#include "quantize/rows/row_share.cuh"

namespace zoo {

// Lanes exchange words as quantisers do: both kinds of kernels give a lane the same columns.
template <class X>
using ElementShare = RowShare<Fp8b128<Scaling::exact>, Matrix<X>>;

// q_stride in bytes.
template <class Share, class Row>
__device__ __forceinline__ void store_elements(const Row& row, uint32_t (&words)[Share::CELLS][2], uint8_t* q, int64_t q_stride,
                                               bool fragments) {
    static_assert(Share::CELLS == Row::CELLS && Share::VALUES == Row::VALUES && Share::PIECE == Row::PIECE);
    const Share share{{}, row.threads.lane, row.column, 0, row.norm.K, true};
    q += row.row * q_stride;
    if (fragments)
        share.store_fragments(words, row.column, q);
    else
        share.store_columns(words, row.column, q);
}

}  // namespace zoo
