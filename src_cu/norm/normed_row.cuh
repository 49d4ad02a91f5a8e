// RMSNorm of rows: s = x + residual, y = s / sqrt(mean(s^2) + eps) * weight. Included by kernels/rows*.cu, which store y or quantise it.
//
// x is read once. A lane keeps its four cells of s in registers, as 2-byte floats, until the row's sum of squares is known:
//
//     load x, residual, weight   ->   s, sum of squares over the row   ->   y of one cell after the other   ->   the kernel's `finish`
//
// s is rounded to the dtype of x before anything else, so `sum` holds what the backward pass needs. y is not rounded before it is quantised.
#pragma once

#include <cstdint>

#include "common/dependent_launch.cuh"
#include "common/global_memory.cuh"
#include "common/input_values.cuh"
#include "norm/row_threads.cuh"

namespace zoo {

// Strides count elements. residual, sum, y and rstd may be null.
struct NormArguments {
    const uint8_t *x, *residual, *weight;
    uint8_t *sum, *y;
    float* rstd;
    int M, K;
    int64_t x_stride, residual_stride, sum_stride, y_stride;
    float eps;
};

// 1 / sqrt(sum of squares / K + eps). Each operation is rounded to nearest.
__device__ __forceinline__ float reciprocal_of_root(float sum_of_squares, int K, float eps) {
    return __frcp_rn(__fsqrt_rn(__fadd_rn(__fdiv_rn(sum_of_squares, float(K)), eps)));
}

// A lane's share of a row: its cells of s, its weights, and what they are multiplied by.
//
// Only loads and stores check the end of a row. Cells behind it hold zeros, and so do their weights. So y is 0 there, unless rstd is infinite
// or NaN. Then no element of y is finite, and NaN behind the end changes no scale of a block that has elements.
template <class X, class Weight, int THREADS>
struct NormedRow {
    using In = Input<X>;
    using Threads = RowThreads<THREADS>;
    static constexpr int CELLS = Threads::CELLS, VALUES = Threads::VALUES, PIECE = Threads::PIECE, BYTES = 2;
    // Whether weights are loaded before the sum is known. Registers do not suffice for f32, nor on Blackwell.
#if __CUDA_ARCH__ == 900
    static constexpr bool KEEPS_WEIGHTS = WeightCell<Weight>::BYTES == 2;
#else
    static constexpr bool KEEPS_WEIGHTS = false;
#endif

    const NormArguments& norm;
    Threads threads;
    uint32_t row;
    bool has_row;
    int column, columns_left;  // the lane's first column; columns from it on, none without a row
    const uint8_t* weight;     // at the lane's first column
    float rstd;
    uint4 cells[CELLS];
    WeightCell<Weight> weights[KEEPS_WEIGHTS ? CELLS : 1];

    __device__ __forceinline__ NormedRow(const NormArguments& norm, int warps_of_row) : norm(norm), threads(warps_of_row) {
        row = blockIdx.x * threads.rows_of_cta + threads.row_of_cta;
        has_row = threads.row_of_cta < threads.rows_of_cta && row < uint32_t(norm.M);
        column = threads.first_column();
        columns_left = has_row ? norm.K - column : 0;
        weight = norm.weight + WeightCell<Weight>::BYTES * column;
    }
    __device__ __forceinline__ bool inside(int i) const { return i * PIECE < columns_left; }

    __device__ __forceinline__ void prefetch_weights() const {
#pragma unroll
        for (int i = 0; i < CELLS; i++)
            if (inside(i)) prefetch(weight + WeightCell<Weight>::BYTES * i * PIECE);
    }

    __device__ __forceinline__ void load() {
        load_cells(norm.x, norm.x_stride, cells);
        if (norm.residual != nullptr) add_residual();
        if (KEEPS_WEIGHTS) {
#pragma unroll
            for (int i = 0; i < CELLS; i++) load_weights(i);
        }
        if (norm.sum != nullptr) {
            uint8_t* start = first_cell(norm.sum, norm.sum_stride);
#pragma unroll
            for (int i = 0; i < CELLS; i++)
                if (inside(i)) store_cell(start + i * PIECE * BYTES, cells[i]);
        }
    }

    __device__ __forceinline__ void find_rstd(float (&sums)[Threads::WARPS]) {
        float squares[VALUES] = {};
#pragma unroll
        for (int i = 0; i < CELLS; i++) {
            float values[VALUES];
            In::to_float(cells[i], values);
#pragma unroll
            for (int j = 0; j < VALUES; j++) squares[j] = __fmaf_rn(values[j], values[j], squares[j]);
        }
        rstd = reciprocal_of_root(threads.sum(squares, sums), norm.K, norm.eps);
        if (norm.rstd != nullptr && has_row && threads.first_of_row()) norm.rstd[row] = rstd;
#pragma unroll
        for (int i = 0; i < CELLS; i++)  // opaque, or the compiler keeps 32 floats, and registers spill
            asm("" : "+r"(cells[i].x), "+r"(cells[i].y), "+r"(cells[i].z), "+r"(cells[i].w));
    }

    // Cell i of y.
    __device__ __forceinline__ Floats<VALUES> normed(int i) {
        float values[VALUES], factors[VALUES];
        if (!KEEPS_WEIGHTS) load_weights(i);
        In::to_float(cells[i], values);
        weights[KEEPS_WEIGHTS ? i : 0].to_float(factors);
        Floats<VALUES> y;
#pragma unroll
        for (int j = 0; j < VALUES; j++) y.values[j] = __fmul_rn(__fmul_rn(values[j], rstd), factors[j]);
        return y;
    }

    // Rounds y to the dtype of x.
    __device__ __forceinline__ void store(const Floats<VALUES> (&y)[CELLS]) const {
        uint8_t* start = first_cell(norm.y, norm.y_stride);
#pragma unroll
        for (int i = 0; i < CELLS; i++)
            if (inside(i)) store_cell(start + i * PIECE * BYTES, encode_cell<X>(y[i].values));
    }

   private:
    __device__ __forceinline__ void load_weights(int i) {
        WeightCell<Weight>& target = weights[KEEPS_WEIGHTS ? i : 0];
        target = {};
        if (inside(i)) target.load(weight, i * PIECE);
    }
    template <class Byte>
    __device__ __forceinline__ Byte* first_cell(Byte* array, int64_t stride) const {
        return array + (row * stride + column) * BYTES;
    }
    __device__ __forceinline__ void load_cells(const uint8_t* array, int64_t stride, uint4 (&loaded)[CELLS]) const {
        const uint8_t* start = first_cell(array, stride);
        asm("" : "+l"(start));  // opaque, or the compiler computes the address again for every cell
#pragma unroll
        for (int i = 0; i < CELLS; i++) {
            loaded[i] = make_uint4(0, 0, 0, 0);
            if (inside(i)) loaded[i] = load_16_bytes(start + i * PIECE * BYTES);
        }
    }
    __device__ __forceinline__ void add_residual() {
        uint4 added[CELLS];
        load_cells(norm.residual, norm.residual_stride, added);
#pragma unroll
        for (int i = 0; i < CELLS; i++) {
            float values[VALUES], others[VALUES];
            In::to_float(cells[i], values);
            In::to_float(added[i], others);
#pragma unroll
            for (int j = 0; j < VALUES; j++) values[j] = __fadd_rn(values[j], others[j]);
            cells[i] = encode_cell<X>(values);
        }
    }
};

// The kernel. finish(row) runs in all threads of a CTA.
template <class X, class Weight, int THREADS, class Finish>
__device__ __forceinline__ void norm_rows(const NormArguments& norm, int warps_of_row, Finish finish) {
    __shared__ float sums[THREADS / 32];
    let_next_kernel_launch();
    NormedRow<X, Weight, THREADS> row(norm, warps_of_row);
    row.prefetch_weights();
    wait_for_previous_kernel();
    row.load();
    row.find_rstd(sums);
    finish(row);
}

}  // namespace zoo
