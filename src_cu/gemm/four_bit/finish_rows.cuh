// As finish.cuh, for D of 16 bits, where tokens are the rows of wgmma and a tile's factors of weights wait in shared memory.
#pragma once

#include <cstdint>

#include "common/matrix_store.cuh"
#include "gemm/four_bit/finish.cuh"

namespace zoo {

// Of one warp: some columns of its 16 tokens on their way to D.
template <int PIECES_>
struct alignas(128) StagedPieces {
    static constexpr int PIECES = PIECES_, COLUMNS = PIECES * 8;  // of 16 bytes a token
    uint8_t bytes[16 * PIECES * 16];

    // No two lanes of eight meet in a bank, both ways.
    __device__ __forceinline__ uint8_t* piece(int row, int piece) {
        return bytes + (row * PIECES + (piece ^ row * PIECES / 8 % PIECES)) * 16;
    }
};

// What a lane multiplies the sums of its two rows by, first and last.
struct FactorsOfRows {
    float first[2] = {1.0f, 1.0f}, last[2];

    template <Weights FORMAT>
    __device__ __forceinline__ FactorsOfRows(const FourBitResult<FORMAT>& d, int row, int end_row) {
        const int rows[2] = {min(row, end_row - 1), min(row + 8, end_row - 1)};
        if (d.a_scale != nullptr) first[0] = d.a_scale_of(rows[0]), first[1] = d.a_scale_of(rows[1]);
        if (d.row_scale != nullptr) last[0] = d.row_scale[rows[0]], last[1] = d.row_scale[rows[1]];
    }
};

// COUNT sums of a lane; `columns`: factors of the weights that the first is of, and those after it.
template <int COUNT, Weights FORMAT>
__device__ __forceinline__ void finish_rows(const FourBitResult<FORMAT>& d, const FactorsOfRows& rows, const float2* columns,
                                            float* sums) {
    auto each = [&](const auto& change) {
#pragma unroll
        for (int j = 0; j < COUNT; j += 4) {  // two columns of two rows
            const float4 two = *reinterpret_cast<const float4*>(columns + j * 2);
#pragma unroll
            for (int i = 0; i < 4; i++)
                change(sums[j + i], i / 2, i % 2 == 0 ? make_float2(two.x, two.y) : make_float2(two.z, two.w));
        }
    };
    each([&](float& sum, int h, float2 column) { sum = __fmul_rn(__fmul_rn(sum, rows.first[h]), column.x); });
    if (d.bias != nullptr) each([&](float& sum, int, float2 column) { sum = __fadd_rn(sum, column.y); });
    if (d.row_scale != nullptr)
#pragma unroll
        for (int j = 0; j < COUNT; j++) sums[j] = __fmul_rn(sums[j], rows.last[j / 2 % 2]);
}

// By a warpgroup: `row` of D is the first of its 64 tokens, `column` the first of the tile's weights.
template <int PIECES, int SUMS, Weights FORMAT>
__device__ __forceinline__ void finish_and_store_rows(const FourBitResult<FORMAT>& d, StagedPieces<PIECES>& staged,
                                                      const float2* columns, int row, int end_row, int column,
                                                      float (&sums)[SUMS]) {
    constexpr int COUNT = PIECES * 4, ROWS = 32 / PIECES;  // sums of a part; rows that a warp writes at once
    const int thread = thread_index_anew(), lane = thread % 32;
    row += thread % WARPGROUP / 32 * 16;
    if (row >= end_row) return;
    const FactorsOfRows factors(d, row + lane / 4, end_row);
    columns += lane % 4 * 2;
    uint8_t* place = d.d + ((row + lane / PIECES) * d.stride + column + lane % PIECES * 8) * 2;
    const int rows = end_row - row - lane / PIECES, left = d.columns - column - lane % PIECES * 8;
#pragma unroll
    for (int first = 0; first < SUMS; first += COUNT) {
        finish_rows<COUNT>(d, factors, columns + first * 2, sums + first);
        __syncwarp();  // those before have been read
#pragma unroll
        for (int i = 0; i < PIECES / 2; i++) {  // 16 rows x 16 columns
            const float* eight = sums + first + i * 8;
            store_matrices(staged.piece(lane % 16, 2 * i + lane / 16), {d.pair(eight[0], eight[1]), d.pair(eight[2], eight[3]),
                                                                        d.pair(eight[4], eight[5]), d.pair(eight[6], eight[7])});
        }
        __syncwarp();
#pragma unroll
        for (int i = 0; i < PIECES / 2; i++) {
            const uint4 eight = *reinterpret_cast<const uint4*>(staged.piece(i * ROWS + lane / PIECES, lane % PIECES));
            if (i * ROWS < rows && first * 2 < left)
                *reinterpret_cast<uint4*>(place + i * ROWS * 2 * d.stride + first * 4) = eight;
        }
    }
}

}  // namespace zoo
