// Input<Dtype>: the values of a 16-byte cell of x as float32, and the largest magnitude in it without a conversion.
//
// The bits of a float without its sign, as an unsigned integer, have the order of the magnitudes: infinity is above every number and NaN
// above infinity. So an integer maximum returns NaN if a value is NaN.
//
// The functions `largest`, `larger` and `magnitude` find a maximum across lanes. A partial maximum may hold several candidates and signs;
// only `magnitude`, the last step, chooses. This takes a third of the instructions for 2-byte floats.
//
// Input<Floats<COUNT>> has the same functions for values that a kernel has computed.
#pragma once

#include <cstdint>
#include <cuda_fp16.h>

#include "common/variant.cuh"

namespace zoo {

template <class Dtype>
struct Input;

// A cell of eight 2-byte floats, two in a word.
struct PackedInput {
    using Cell = uint4;
    static constexpr int VALUES = 8;

    static __device__ __forceinline__ uint32_t largest_magnitude(uint4 v) {
        constexpr uint32_t MAGNITUDES = 0x7FFF7FFF;
        const uint32_t pair =
            __vmaxu2(__vmaxu2(v.x & MAGNITUDES, v.y & MAGNITUDES), __vmaxu2(v.z & MAGNITUDES, v.w & MAGNITUDES));
        return max(pair & 0xFFFF, pair >> 16);
    }

    static __device__ __forceinline__ uint32_t magnitude(uint32_t partial) {
        return max(partial & 0x7FFF, partial >> 16 & 0x7FFF);
    }

    // The magnitude of column 0 or 1, if the words of a partial maximum are rows of two columns.
    static __device__ __forceinline__ uint32_t magnitude_at(uint32_t partial, int column) {
        return partial >> 16 * column & 0x7FFF;
    }

    // Bit 4 i + 3 is the sign of value i.
    static __device__ __forceinline__ uint32_t nibble_signs(uint4 v) {
        const uint32_t four = __byte_perm(v.x, v.y, 0x7351), others = __byte_perm(v.z, v.w, 0x7351);
        const uint32_t even = __byte_perm(four, others, 0x5410), odd = __byte_perm(four, others, 0x7632);
        return even >> 4 & 0x08080808 | odd & 0x80808080;
    }
};

template <>
struct Input<bf16> : PackedInput {
    static __device__ __forceinline__ uint32_t larger(uint32_t a, uint32_t b) {
        uint32_t d;
        asm("max.NaN.xorsign.abs.bf16x2 %0, %1, %2;" : "=r"(d) : "r"(a), "r"(b));
        return d;
    }
    static __device__ __forceinline__ uint32_t largest(uint4 v) { return larger(larger(v.x, v.y), larger(v.z, v.w)); }

    static __device__ __forceinline__ float magnitude_to_float(uint32_t magnitude) { return __uint_as_float(magnitude << 16); }

    static __device__ __forceinline__ void to_float(uint4 v, float (&values)[VALUES]) {
        const uint32_t words[4] = {v.x, v.y, v.z, v.w};
#pragma unroll
        for (int i = 0; i < 4; i++) {
            values[2 * i] = __uint_as_float(words[i] << 16);
            values[2 * i + 1] = __uint_as_float(words[i] & 0xFFFF0000);
        }
    }
};

template <>
struct Input<f16> : PackedInput {
    static __device__ __forceinline__ uint32_t larger(uint32_t a, uint32_t b) {
        uint32_t d;
        asm("max.NaN.xorsign.abs.f16x2 %0, %1, %2;" : "=r"(d) : "r"(a), "r"(b));
        return d;
    }
    static __device__ __forceinline__ uint32_t largest(uint4 v) { return larger(larger(v.x, v.y), larger(v.z, v.w)); }

    static __device__ __forceinline__ float magnitude_to_float(uint32_t magnitude) {
        return __half2float(__ushort_as_half(static_cast<unsigned short>(magnitude)));
    }

    static __device__ __forceinline__ void to_float(uint4 v, float (&values)[VALUES]) {
        const uint32_t words[4] = {v.x, v.y, v.z, v.w};
#pragma unroll
        for (int i = 0; i < 4; i++) {
            values[2 * i] = __half2float(__ushort_as_half(static_cast<unsigned short>(words[i])));
            values[2 * i + 1] = __half2float(__ushort_as_half(static_cast<unsigned short>(words[i] >> 16)));
        }
    }
};

// Bit 4 i + 3 is the sign of value i.
template <int COUNT>
__device__ __forceinline__ uint32_t nibble_signs_of(const float (&values)[COUNT]) {
    uint32_t signs = 0;
#pragma unroll
    for (int i = COUNT - 1; i >= 0; i--) signs = __funnelshift_l(__float_as_uint(values[i]), signs, 4);
    return signs & (COUNT == 8 ? 0x88888888 : 0x00008888);
}

template <>
struct Input<f32> {
    using Cell = uint4;
    static constexpr int VALUES = 4;

    static __device__ __forceinline__ uint32_t largest_magnitude(uint4 v) {
        constexpr uint32_t MAGNITUDE = 0x7FFFFFFF;
        return max(max(v.x & MAGNITUDE, v.y & MAGNITUDE), max(v.z & MAGNITUDE, v.w & MAGNITUDE));
    }

    static __device__ __forceinline__ uint32_t larger(uint32_t a, uint32_t b) { return max(a, b); }
    static __device__ __forceinline__ uint32_t largest(uint4 v) { return largest_magnitude(v); }
    static __device__ __forceinline__ uint32_t magnitude(uint32_t partial) { return partial; }
    static __device__ __forceinline__ uint32_t magnitude_at(uint32_t partial, int) { return partial; }

    static __device__ __forceinline__ float magnitude_to_float(uint32_t magnitude) { return __uint_as_float(magnitude); }

    static __device__ __forceinline__ void to_float(uint4 v, float (&values)[VALUES]) {
        values[0] = __uint_as_float(v.x);
        values[1] = __uint_as_float(v.y);
        values[2] = __uint_as_float(v.z);
        values[3] = __uint_as_float(v.w);
    }

    static __device__ __forceinline__ uint32_t nibble_signs(uint4 v) {
        float values[VALUES];
        to_float(v, values);
        return nibble_signs_of(values);
    }
};

// The values of one column of COUNT rows. A word is a row: one float, or two columns of 2-byte floats.
template <class In, int COUNT>
__device__ __forceinline__ void column_values(const uint32_t* rows, int column, float (&values)[COUNT]) {
    constexpr int COLUMNS = In::VALUES / 4;
#pragma unroll
    for (int r = 0; r < COUNT; r += 4) {
        float four[In::VALUES];  // row by row
        In::to_float(make_uint4(rows[r], rows[r + 1], rows[r + 2], rows[r + 3]), four);
#pragma unroll
        for (int i = 0; i < 4; i++) values[r + i] = four[i * COLUMNS + column];
    }
}

// For four rows of two 2-byte floats: bit 4 r + 3 of each half is the sign of row r. Other bits are undefined.
__device__ __forceinline__ uint32_t signs_of_two_columns(const uint32_t* x) {
    const uint32_t even = __byte_perm(x[0], x[2], 0x7351), odd = __byte_perm(x[1], x[3], 0x7351);
    constexpr uint32_t LOW = 0x0F0F0F0F;
    return even >> 4 & LOW | odd & ~LOW;
}

// For eight rows, a word each: bit 4 r + 3 of a column's word is the sign of row r. Other bits are undefined.
template <class In, int COLUMNS>
__device__ __forceinline__ void column_signs(const uint32_t* rows, uint32_t (&signs)[COLUMNS]) {
    if constexpr (COLUMNS == 2) {
        const uint32_t first = signs_of_two_columns(rows), second = signs_of_two_columns(rows + 4);
        signs[0] = __byte_perm(first, second, 0x5410);
        signs[1] = __byte_perm(first, second, 0x7632);
    } else {
        float values[8];
        column_values<In>(rows, 0, values);
        signs[0] = nibble_signs_of(values);
    }
}

template <int COUNT>
struct Floats {
    float values[COUNT];
};

template <int COUNT>
struct Input<Floats<COUNT>> {
    using Cell = Floats<COUNT>;
    static constexpr int VALUES = COUNT;

    static __device__ __forceinline__ uint32_t larger(uint32_t a, uint32_t b) { return max(a, b); }
    static __device__ __forceinline__ uint32_t largest(const Cell& cell) {
        float magnitude = 0;
#pragma unroll
        for (int i = 0; i < COUNT; i++)
            asm("max.NaN.f32 %0, %1, %2;" : "=f"(magnitude) : "f"(magnitude), "f"(fabsf(cell.values[i])));
        return __float_as_uint(magnitude);
    }
    static __device__ __forceinline__ uint32_t magnitude(uint32_t partial) { return partial; }
    static __device__ __forceinline__ float magnitude_to_float(uint32_t magnitude) { return __uint_as_float(magnitude); }

    static __device__ __forceinline__ void to_float(const Cell& cell, float (&values)[VALUES]) {
#pragma unroll
        for (int i = 0; i < COUNT; i++) values[i] = cell.values[i];
    }

    static __device__ __forceinline__ uint32_t nibble_signs(const Cell& cell) { return nibble_signs_of(cell.values); }
};

}  // namespace zoo
