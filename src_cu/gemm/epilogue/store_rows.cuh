// From a multiplying warp's sums to D, tokens as rows. Each warp stores its own 16 rows: no barrier, and a tile may end at any
// row. 16-bit elements go through 2 KiB of shared memory a warp, 64 columns at a time, so that 8 lanes write 128 bytes of a row:
//
//     16 rows x 128 bytes, the 16 bytes of piece p of row r at p ^ (r % 8): no two lanes of 8 meet in a bank, both ways
#pragma once

#include <cstdint>

#include "common/either16.cuh"
#include "common/global_memory.cuh"
#include "common/half.cuh"
#include "common/matrix_store.cuh"
#include "common/variant.cuh"
#include "common/wgmma.cuh"

namespace zoo {

template <class D>
constexpr int BYTES = 2;
template <>
constexpr int BYTES<f32> = 4;

// D, rows `stride` elements apart.
template <class D>
struct Matrix {
    uint8_t* first;
    int64_t stride;
    int columns;

    __device__ __forceinline__ uint8_t* at(int row, int column) const { return first + (row * stride + column) * BYTES<D>; }
};

template <>
struct Matrix<Either16> {
    uint8_t* first;
    int64_t stride;
    int columns;
    bool is_f16;

    __device__ __forceinline__ uint8_t* at(int row, int column) const { return first + (row * stride + column) * 2; }
};

// What D has for elements: the dtype that a variant is compiled for, or one of 16 bits that the launch says.
template <class V>
struct ElementsOfD {
    using Type = Either16;
};
template <class V>
    requires requires { typename V::d; }
struct ElementsOfD<V> {
    using Type = typename V::d;
};

template <class D>
__device__ __forceinline__ Matrix<D> matrix_of(uint8_t* first, int64_t stride, int columns, int is_f16) {
    if constexpr (requires(Matrix<D> matrix) { matrix.is_f16; })
        return {first, stride, columns, is_f16 != 0};
    else
        return {first, stride, columns};
}

template <class D>
__device__ __forceinline__ uint32_t encode_two(const Matrix<D>&, float first, float second) {
    return encode_pair<D>(first, second);
}
__device__ __forceinline__ uint32_t encode_two(const Matrix<Either16>& d, float first, float second) {
    return encode_pair_of_either(first, second, d.is_f16);
}

constexpr int STAGED_ROWS = 16, STAGED_COLUMNS = 64;

// Of one warp.
struct alignas(1024) StagedRows {
    uint8_t bytes[STAGED_ROWS * STAGED_COLUMNS * 2];

    __device__ __forceinline__ uint8_t* piece(int row, int piece) { return bytes + row * 128 + (piece ^ row % 8) * 16; }
};

// COLUMNS of 64 or less of a warp's 16 rows, whose sums `sums` points to; `row` and `column` are those of D.
template <int COLUMNS, class D>
__device__ __forceinline__ void store_part(const Matrix<D>& d, StagedRows& staged, int row, int end_row, int column,
                                           const float* sums, int lane) {
    __syncwarp();  // the part before has been read
#pragma unroll
    for (int i = 0; i < (COLUMNS + 15) / 16; i++) {  // 16 rows x 16 columns: matrices 0 and 1 below each other, 2 and 3 right
        const float *eight = &sums[i * 8], *right = i * 16 + 8 < COLUMNS ? eight + 4 : eight;  // or columns that are not stored
        const uint32_t matrices[4] = {encode_two(d, eight[0], eight[1]), encode_two(d, eight[2], eight[3]),
                                      encode_two(d, right[0], right[1]), encode_two(d, right[2], right[3])};
        store_matrices(staged.piece(lane % 16, 2 * i + lane / 16), matrices);
    }
    __syncwarp();
#pragma unroll
    for (int i = 0; i < STAGED_ROWS / 4; i++) {
        const int r = i * 4 + lane / 8, c = column + lane % 8 * 8;
        const uint4 eight = *reinterpret_cast<const uint4*>(staged.piece(r, lane % 8));
        const bool ours = COLUMNS == STAGED_COLUMNS || lane % 8 * 8 < COLUMNS;
        if (ours && row + r < end_row && c < d.columns) *reinterpret_cast<uint4*>(d.at(row + r, c)) = eight;
    }
}

// The sums of 64 x COLUMNS, of which this warp has 16 rows; `row` and `column` are those of the 64 x COLUMNS in D. Rows from
// end_row on are not written.
template <class D, int SUMS>
__device__ __forceinline__ void store_rows(const Matrix<D>& d, StagedRows& staged, int row, int end_row, int column,
                                           const float (&sums)[SUMS]) {
    const int thread = thread_index_anew(), lane = thread % 32, first_row = row + thread % WARPGROUP / 32 * STAGED_ROWS;
    constexpr int PARTS = SUMS * 2 / STAGED_COLUMNS, LEFT = SUMS * 2 % STAGED_COLUMNS;
    static_assert(LEFT % 8 == 0);
#pragma unroll
    for (int part = 0; part < PARTS; part++)
        store_part<STAGED_COLUMNS>(d, staged, first_row, end_row, column + part * STAGED_COLUMNS,
                                   &sums[part * STAGED_COLUMNS / 2], lane);
    if constexpr (LEFT != 0)
        store_part<LEFT>(d, staged, first_row, end_row, column + PARTS * STAGED_COLUMNS, &sums[PARTS * STAGED_COLUMNS / 2], lane);
}

// Four neighbouring lanes write 32 bytes of a row as they are.
template <int SUMS>
__device__ __forceinline__ void store_rows(const Matrix<f32>& d, StagedRows&, int row, int end_row, int column,
                                           const float (&sums)[SUMS]) {
    const int thread = thread_index_anew();
#pragma unroll
    for (int j = 0; j < SUMS; j += 2) {
        const int r = row + accumulator_row(j, thread), c = column + accumulator_column(j, thread);
        if (r < end_row && c < d.columns) *reinterpret_cast<float2*>(d.at(r, c)) = make_float2(sums[j], sums[j + 1]);
    }
}

// sums *= the factor of their row, each rounded to f32.
template <int SUMS>
__device__ __forceinline__ void scale_rows(float (&sums)[SUMS], const float* factors, int row, int end_row) {
    const int first = row + accumulator_row(0, thread_index_anew());
    float own[2];
#pragma unroll
    for (int half = 0; half < 2; half++) own[half] = first + half * 8 < end_row ? factors[first + half * 8] : 0;
#pragma unroll
    for (int j = 0; j < SUMS; j++) sums[j] = __fmul_rn(sums[j], own[j / 2 % 2]);
}

// sums += C, each rounded to f32.
template <class C, int SUMS>
__device__ __forceinline__ void add_rows(float (&sums)[SUMS], const Matrix<C>& c, int row, int end_row, int column) {
    const int thread = thread_index_anew();
#pragma unroll
    for (int j = 0; j < SUMS; j += 2) {
        const int r = row + accumulator_row(j, thread), at = column + accumulator_column(j, thread);
        if (r >= end_row || at >= c.columns) continue;
        const float2 two = load_two<C>(c.at(r, at));
        sums[j] += two.x;
        sums[j + 1] += two.y;
    }
}

}  // namespace zoo
