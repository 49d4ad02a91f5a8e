// What may be done to the f32 sums before they are stored: each row times a factor, then C added, each rounded to f32.
#pragma once

#include <cstdint>

#include "common/half.cuh"
#include "common/variant.cuh"
#include "gemm/load/operands.cuh"
#include "gemm/epilogue/store_rows.cuh"

namespace zoo {

// Plus C, f32 or bf16 as the launch says.
template <class D>
struct Sum : Matrix<D> {
    uint8_t* c;  // null: there is none
    int64_t c_stride;
    bool c_is_bf16;

    __device__ __forceinline__ const uint8_t* c_at(int row, int column) const {
        return c + (row * c_stride + column) * (c_is_bf16 ? 2 : 4);
    }

    // Elements `column` and the one after it, from c_at() on. One way for both types: the code around it is unrolled.
    __device__ __forceinline__ float2 load_two(const uint8_t* c, int column) const {
        uint32_t first, second = 0;
        c += column * (c_is_bf16 ? 2 : 4);
        asm volatile("ld.global.u32 %0, [%1];" : "=r"(first) : "l"(c));
        if (!c_is_bf16) asm volatile("ld.global.u32 %0, [%1];" : "=r"(second) : "l"(c + 4));
        return c_is_bf16 ? decode_pair<bf16>(first) : make_float2(__uint_as_float(first), __uint_as_float(second));
    }
};

template <class D, int SUMS>
__device__ __forceinline__ void store(const Sum<D>& d, StagedRows& staged, const Work& work, int row, float (&sums)[SUMS]) {
    if (d.c != nullptr) {
        const int thread = thread_index_anew();
#pragma unroll
        for (int j = 0; j < SUMS; j += 2) {
            const int r = work.token + row + accumulator_row(j, thread), column = work.weight + accumulator_column(j, thread);
            if (r >= work.end_token || column >= d.columns) continue;
            const float2 two = d.load_two(d.c_at(r, column), 0);
            sums[j] += two.x;
            sums[j + 1] += two.y;
        }
    }
    store_rows(d, staged, work.token + row, work.end_token, work.weight, sums);
}

// Each row times a factor of its own.
template <class Target>
struct Scaled : Target {
    const float* row_scale;  // null: there are none
};

template <class Target, int SUMS>
__device__ __forceinline__ void store(const Scaled<Target>& scaled, StagedRows& staged, const Work& work, int row,
                                      float (&sums)[SUMS]) {
    if (scaled.row_scale != nullptr) scale_rows(sums, scaled.row_scale, work.token + row, work.end_token);
    store(static_cast<const Target&>(scaled), staged, work, row, sums);
}

// The same to eight neighbouring elements.
template <class D>
__device__ __forceinline__ void finish_eight(const Matrix<D>&, int, int, float (&)[8]) {}

template <class D>
__device__ __forceinline__ void finish_eight(const Sum<D>& d, int row, int column, float (&sums)[8]) {
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
__device__ __forceinline__ void finish_eight(const Scaled<Target>& scaled, int row, int column, float (&sums)[8]) {
    if (scaled.row_scale != nullptr) {
        const float factor = scaled.row_scale[row];
#pragma unroll
        for (int i = 0; i < 8; i++) sums[i] = __fmul_rn(sums[i], factor);
    }
    finish_eight(static_cast<const Target&>(scaled), row, column, sums);
}

}  // namespace zoo
