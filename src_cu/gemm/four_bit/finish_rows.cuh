// As finish.cuh, where tokens are the rows of wgmma and a tile's factors of weights wait in shared memory.
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

template <int PIECES, int SUMS, Weights FORMAT>
__device__ __forceinline__ void store_halves_of_rows(const FourBitResult<FORMAT>& d, StagedPieces<PIECES>& staged, int row,
                                                     int end_row, int column, int lane, const float (&sums)[SUMS]) {
    constexpr int COLUMNS = PIECES * 8;
#pragma unroll
    for (int first = 0; first < SUMS * 2; first += COLUMNS) {
        __syncwarp();  // those before have been read
#pragma unroll
        for (int i = 0; i < PIECES / 2; i++) {  // 16 rows x 16 columns
            const float* eight = &sums[first / 2 + i * 8];
            store_matrices(staged.piece(lane % 16, 2 * i + lane / 16), {d.pair(eight[0], eight[1]), d.pair(eight[2], eight[3]),
                                                                        d.pair(eight[4], eight[5]), d.pair(eight[6], eight[7])});
        }
        __syncwarp();
#pragma unroll
        for (int i = 0; i < PIECES / 2; i++) {
            const int r = (i * 32 + lane) / PIECES, piece = lane % PIECES, c = column + first + piece * 8;
            const uint4 eight = *reinterpret_cast<const uint4*>(staged.piece(r, piece));
            if (row + r < end_row && c < d.columns) *reinterpret_cast<uint4*>(d.at(row + r, c)) = eight;
        }
    }
}

// By a warpgroup: `row` of D is the first of its 64 tokens, `column` the first of the tile's weights.
template <int PIECES, int SUMS, Weights FORMAT>
__device__ __forceinline__ void finish_and_store_rows(const FourBitResult<FORMAT>& d, StagedPieces<PIECES>& staged,
                                                      const float2* columns, int row, int end_row, int column,
                                                      float (&sums)[SUMS]) {
    const int thread = thread_index_anew(), lane = thread % 32;
    row += thread % WARPGROUP / 32 * 16;
    if (row >= end_row) return;
    float scales[2], factors[2];
#pragma unroll
    for (int h = 0; h < 2; h++) {
        const int own = min(row + lane / 4 + h * 8, end_row - 1);
        scales[h] = d.a_scale != nullptr ? d.a_scale_of(own) : 1.0f;
        factors[h] = d.row_scale != nullptr ? d.row_scale[own] : 1.0f;
    }
#pragma unroll
    for (int j = 0; j < SUMS; j += 4) {  // two columns of two rows
        const float4 two = *reinterpret_cast<const float4*>(columns + j * 2 + lane % 4 * 2);
#pragma unroll
        for (int i = 0; i < 4; i++) {
            float& sum = sums[j + i];
            sum = __fmul_rn(__fmul_rn(sum, scales[i / 2]), i % 2 == 0 ? two.x : two.z);
            if (d.bias != nullptr) sum = __fadd_rn(sum, i % 2 == 0 ? two.y : two.w);
            sum = __fmul_rn(sum, factors[i / 2]);
        }
    }
    if (d.kind != IS_F32) {
        store_halves_of_rows(d, staged, row, end_row, column, lane, sums);
    } else {
#pragma unroll
        for (int j = 0; j < SUMS; j += 2) {
            const int r = row + lane / 4 + j / 2 % 2 * 8, c = column + accumulator_column(j, lane);
            if (r < end_row && c < d.columns) *reinterpret_cast<float2*>(d.at(r, c)) = make_float2(sums[j], sums[j + 1]);
        }
    }
}

}  // namespace zoo
