// Stores the sums of a math warp in D, where tokens are the rows of wgmma. Before that, ScaleRows multiplies rows by factors, and AddC adds C; both
// round to f32. Included by all kernels of hopper_fp8: where tokens are the columns of wgmma, they use the types of D and finish_eight().
//
// Each warp stores its own 16 rows: no barrier is needed, and a tile may end at any row. 16-bit elements go through a buffer of 2 KiB a warp,
// 64 columns at a time, so that 8 lanes write 128 bytes of a row:
//
//     16 rows x 128 bytes, the 16 bytes of piece p of row r at p ^ (r % 8): no bank conflicts among 8 lanes that write or read
#pragma once

#include <cstdint>

#include "common/chosen_half.cuh"
#include "common/half.cuh"
#include "common/matrix_store.cuh"
#include "common/variant.cuh"
#include "common/wgmma.cuh"
#include "gemm/schedule/tile_schedule.cuh"

namespace zoo {

template <class D>
constexpr int ELEMENT_BYTES = 2;
template <>
constexpr int ELEMENT_BYTES<f32> = 4;

// D (rows, columns). Rows are `stride` elements apart.
template <class D>
struct OutputMatrix {
    uint8_t* first;
    int64_t stride;
    int columns;

    __device__ __forceinline__ uint8_t* at(int row, int column) const {
        return first + (row * stride + column) * ELEMENT_BYTES<D>;
    }
};

template <>
struct OutputMatrix<ChosenHalf> {
    uint8_t* first;
    int64_t stride;
    int columns;
    bool is_f16;

    __device__ __forceinline__ uint8_t* at(int row, int column) const { return first + (row * stride + column) * 2; }
};

// The dtype of D: `d` of the variant, or bf16 or f16 as the launch chooses.
template <class V>
struct OutputElement {
    using Type = ChosenHalf;
};
template <class V>
    requires requires { typename V::d; }
struct OutputElement<V> {
    using Type = typename V::d;
};

template <class D>
__device__ __forceinline__ OutputMatrix<D> output_matrix(uint8_t* first, int64_t stride, int columns, int is_f16) {
    if constexpr (requires(OutputMatrix<D> matrix) { matrix.is_f16; })
        return {first, stride, columns, is_f16 != 0};
    else
        return {first, stride, columns};
}

template <class D>
__device__ __forceinline__ uint32_t encode_two(const OutputMatrix<D>&, float first, float second) {
    return encode_two<D>(first, second);
}
__device__ __forceinline__ uint32_t encode_two(const OutputMatrix<ChosenHalf>& d, float first, float second) {
    return encode_two_chosen(first, second, d.is_f16);
}

constexpr int WARP_ROWS = 16, BUFFER_COLUMNS = 64;

// The buffer of one warp.
struct alignas(1024) RowBuffer {
    uint8_t bytes[WARP_ROWS * BUFFER_COLUMNS * 2];

    __device__ __forceinline__ uint8_t* piece(int row, int piece) { return bytes + row * 128 + (piece ^ row % 8) * 16; }
};

// Stores COLUMNS (at most 64) columns of a warp's 16 rows. `row` and `column` are coordinates in D.
template <int COLUMNS, class D>
__device__ __forceinline__ void store_part(const OutputMatrix<D>& d, RowBuffer& buffer, int row, int end_row, int column,
                                           const float* sums, int lane) {
    __syncwarp();  // all lanes have read the previous part
#pragma unroll
    for (int i = 0; i < (COLUMNS + 15) / 16; i++) {  // 16 rows x 16 columns: matrix 1 below matrix 0, 2 and 3 to the right
        const float *eight = &sums[i * 8], *right = i * 16 + 8 < COLUMNS ? eight + 4 : eight;  // or a copy that is not stored
        const uint32_t matrices[4] = {encode_two(d, eight[0], eight[1]), encode_two(d, eight[2], eight[3]),
                                      encode_two(d, right[0], right[1]), encode_two(d, right[2], right[3])};
        store_matrices(buffer.piece(lane % 16, 2 * i + lane / 16), matrices);
    }
    __syncwarp();
#pragma unroll
    for (int i = 0; i < WARP_ROWS / 4; i++) {
        const int r = i * 4 + lane / 8, c = column + lane % 8 * 8;
        const uint4 eight = *reinterpret_cast<const uint4*>(buffer.piece(r, lane % 8));
        const bool exists = COLUMNS == BUFFER_COLUMNS || lane % 8 * 8 < COLUMNS;
        if (exists && row + r < end_row && c < d.columns) *reinterpret_cast<uint4*>(d.at(row + r, c)) = eight;
    }
}

// Stores this warp's 16 rows of a wgmma's 64 x COLUMNS sums. `row` and `column` are the coordinates of the 64 x COLUMNS in D.
// Rows from end_row on are not written.
template <class D, int SUMS>
__device__ __forceinline__ void store_rows(const OutputMatrix<D>& d, RowBuffer& buffer, int row, int end_row, int column,
                                           const float (&sums)[SUMS]) {
    const int thread = reread_thread_index(), lane = thread % 32, first_row = row + thread % WARPGROUP / 32 * WARP_ROWS;
    constexpr int PARTS = SUMS * 2 / BUFFER_COLUMNS, LEFT = SUMS * 2 % BUFFER_COLUMNS;
    static_assert(LEFT % 8 == 0);
#pragma unroll
    for (int part = 0; part < PARTS; part++)
        store_part<BUFFER_COLUMNS>(d, buffer, first_row, end_row, column + part * BUFFER_COLUMNS,
                                   &sums[part * BUFFER_COLUMNS / 2], lane);
    if constexpr (LEFT != 0)
        store_part<LEFT>(d, buffer, first_row, end_row, column + PARTS * BUFFER_COLUMNS, &sums[PARTS * BUFFER_COLUMNS / 2], lane);
}

// Four neighbouring lanes write 32 bytes of a row without a buffer.
template <int SUMS>
__device__ __forceinline__ void store_rows(const OutputMatrix<f32>& d, RowBuffer&, int row, int end_row, int column,
                                           const float (&sums)[SUMS]) {
    const int thread = reread_thread_index();
#pragma unroll
    for (int j = 0; j < SUMS; j += 2) {
        const int r = row + accumulator_row(j, thread), c = column + accumulator_column(j, thread);
        if (r < end_row && c < d.columns) *reinterpret_cast<float2*>(d.at(r, c)) = make_float2(sums[j], sums[j + 1]);
    }
}

// sums *= the factor of their row.
template <int SUMS>
__device__ __forceinline__ void scale_rows(float (&sums)[SUMS], const float* factors, int row, int end_row) {
    const int first = row + accumulator_row(0, reread_thread_index());
    float own[2];
#pragma unroll
    for (int half = 0; half < 2; half++) own[half] = first + half * 8 < end_row ? factors[first + half * 8] : 0;
#pragma unroll
    for (int j = 0; j < SUMS; j++) sums[j] = __fmul_rn(sums[j], own[j / 2 % 2]);
}

// sums += C.
template <class C, int SUMS>
__device__ __forceinline__ void add_rows(float (&sums)[SUMS], const OutputMatrix<C>& c, int row, int end_row, int column) {
    const int thread = reread_thread_index();
#pragma unroll
    for (int j = 0; j < SUMS; j += 2) {
        const int r = row + accumulator_row(j, thread), at = column + accumulator_column(j, thread);
        if (r >= end_row || at >= c.columns) continue;
        const float2 two = load_two<C>(c.at(r, at));
        sums[j] += two.x;
        sums[j + 1] += two.y;
    }
}

// Stores 64 rows of a tile, from the tile's `row` on, in one matrix. Other targets overload store().
template <class D, int SUMS>
__device__ __forceinline__ void store(const OutputMatrix<D>& d, RowBuffer& buffer, const Work& work, int row,
                                      const float (&sums)[SUMS]) {
    store_rows(d, buffer, work.token + row, work.end_token, work.weight, sums);
}

// Stores the sums of one pass.
template <class Target, int SUMS>
concept StoresPassOf = requires(const Target& target, RowBuffer& buffer, const Work& work, float (&sums)[SUMS]) {
    store(target, buffer, work, 0, sums);
};

// Stores a warpgroup's passes: 64 rows each, or COLUMN_PASSES parts of the columns of 64 rows.
template <int COLUMN_PASSES, int PASS = 0, class Target, int PASSES, int SUMS>
    requires StoresPassOf<Target, SUMS>
__device__ __forceinline__ void store_passes(const Target& target, RowBuffer& buffer, Work work, int row,
                                             float (&sums)[PASSES][SUMS]) {
    store(target, buffer, work, row + PASS / COLUMN_PASSES * WGMMA_ROWS, sums[PASS]);
    if (COLUMN_PASSES > 1) work.weight += SUMS * 2;
    // Recursion instead of a loop: in a loop the compiler would keep sums that may be scaled on the stack.
    if constexpr (PASS + 1 < PASSES) store_passes<COLUMN_PASSES, PASS + 1>(target, buffer, work, row, sums);
}

// Stores all sums of a warpgroup.
template <class Target, class Tile>
concept StoresRowsOf =
    requires(const Target& target, RowBuffer& buffer, const Work& work, float (&sums)[Tile::PASSES][Tile::SUMS]) {
        store_passes<Tile::COLUMN_PASSES>(target, buffer, work, 0, sums);
    };

// D = sums + C. C is f32 or bf16, as the launch chooses.
template <class D>
struct AddC : OutputMatrix<D> {
    uint8_t* c;  // may be null
    int64_t c_stride;
    bool c_is_bf16;

    __device__ __forceinline__ const uint8_t* c_at(int row, int column) const {
        return c + (row * c_stride + column) * (c_is_bf16 ? 2 : 4);
    }

    // Elements `column` and `column` + 1 behind `c`. Both types share the code, which callers unroll.
    __device__ __forceinline__ float2 load_two(const uint8_t* c, int column) const {
        uint32_t first, second = 0;
        c += column * (c_is_bf16 ? 2 : 4);
        asm volatile("ld.global.u32 %0, [%1];" : "=r"(first) : "l"(c));
        if (!c_is_bf16) asm volatile("ld.global.u32 %0, [%1];" : "=r"(second) : "l"(c + 4));
        return c_is_bf16 ? decode_two<bf16>(first) : make_float2(__uint_as_float(first), __uint_as_float(second));
    }
};

template <class D, int SUMS>
__device__ __forceinline__ void store(const AddC<D>& d, RowBuffer& buffer, const Work& work, int row, float (&sums)[SUMS]) {
    if (d.c != nullptr) {
        const int thread = reread_thread_index();
#pragma unroll
        for (int j = 0; j < SUMS; j += 2) {
            const int r = work.token + row + accumulator_row(j, thread), column = work.weight + accumulator_column(j, thread);
            if (r >= work.end_token || column >= d.columns) continue;
            const float2 two = d.load_two(d.c_at(r, column), 0);
            sums[j] += two.x;
            sums[j + 1] += two.y;
        }
    }
    store_rows(d, buffer, work.token + row, work.end_token, work.weight, sums);
}

// Each row of the sums is multiplied by its factor.
template <class Target>
struct ScaleRows : Target {
    const float* row_scale;  // may be null
};

template <class Target, int SUMS>
__device__ __forceinline__ void store(const ScaleRows<Target>& scaled, RowBuffer& buffer, const Work& work, int row,
                                      float (&sums)[SUMS]) {
    if (scaled.row_scale != nullptr) scale_rows(sums, scaled.row_scale, work.token + row, work.end_token);
    store(static_cast<const Target&>(scaled), buffer, work, row, sums);
}

// finish_eight() scales and adds C for eight neighbouring columns of a row.
template <class D>
__device__ __forceinline__ void finish_eight(const OutputMatrix<D>&, int, int, float (&)[8]) {}

template <class D>
__device__ __forceinline__ void finish_eight(const AddC<D>& d, int row, int column, float (&sums)[8]) {
    if (d.c == nullptr) return;
    const uint8_t* c = d.c_at(row, column);
#pragma unroll
    for (int i = 0; i < 8; i += 2) {
        const float2 two = d.load_two(c, i);
        sums[i] += two.x;
        sums[i + 1] += two.y;
    }
}

template <class Target>
__device__ __forceinline__ void finish_eight(const ScaleRows<Target>& scaled, int row, int column, float (&sums)[8]) {
    if (scaled.row_scale != nullptr) {
        const float factor = scaled.row_scale[row];
#pragma unroll
        for (int i = 0; i < 8; i++) sums[i] = __fmul_rn(sums[i], factor);
    }
    finish_eight(static_cast<const Target&>(scaled), row, column, sums);
}

}  // namespace zoo
