// The last steps from a sum to an element of D, and their order: times alpha, plus bias, times row_scale, plus c, each rounded to f32; then one
// rounding to D's dtype. Included by all GEMMs of blackwell/.
#pragma once

#include <cstdint>

#include "common/global_memory.cuh"
#include "common/half.cuh"
#include "common/sector_store.cuh"

namespace zoo {

constexpr int SEGMENT = 32;  // neighbouring columns of a row that one thread holds

enum class OutputType { bf16, f16, f32 };

// Numbers that are added to sums: a bias or c, in f32 or bf16, as the launch chooses.
struct Addend {
    const uint8_t* first = nullptr;  // null: there is nothing to add
    int is_bf16 = 0;

    __device__ __forceinline__ float at(int64_t index) const {
        if (!is_bf16) return reinterpret_cast<const float*>(first)[index];
        return __uint_as_float(uint32_t(reinterpret_cast<const uint16_t*>(first)[index]) << 16);
    }

    // Adds to each of the first `count` sums. The first number is at `index`, the others are `step` apart.
    template <int COUNT>
    __device__ __forceinline__ void add_to(float (&sums)[COUNT], int64_t index, int64_t step, int count) const {
        if (is_bf16)
            add_each<uint16_t>(sums, index, step, count);
        else
            add_each<uint32_t>(sums, index, step, count);
    }

    // Loads eight neighbours. `first` is 16-byte aligned, and `index` a multiple of 8.
    __device__ __forceinline__ void eight_at(int64_t index, float (&eight)[8]) const {
        const uint8_t* from = first + index * (is_bf16 ? 2 : 4);
        const uint4 four = load_16_bytes(from);
        const uint32_t words[4] = {four.x, four.y, four.z, four.w};
        if (is_bf16) {
#pragma unroll
            for (int i = 0; i < 4; i++) {
                const float2 two = decode_two<bf16>(words[i]);
                eight[2 * i] = two.x;
                eight[2 * i + 1] = two.y;
            }
        } else {
            const uint4 others = load_16_bytes(from + 16);
            const uint32_t more[4] = {others.x, others.y, others.z, others.w};
#pragma unroll
            for (int i = 0; i < 4; i++) {
                eight[i] = __uint_as_float(words[i]);
                eight[4 + i] = __uint_as_float(more[i]);
            }
        }
    }

   private:
    // A Word is an f32, or its upper half.
    template <class Word, int COUNT>
    __device__ __forceinline__ void add_each(float (&sums)[COUNT], int64_t index, int64_t step, int count) const {
        const Word* from = reinterpret_cast<const Word*>(first) + index;
#pragma unroll
        for (int i = 0; i < COUNT; i++) {
            const uint32_t bits = i < count ? uint32_t(from[i * step]) << (32 - 8 * sizeof(Word)) : 0;
            sums[i] = __fadd_rn(sums[i], __uint_as_float(bits));
        }
    }
};

struct Finish {
    uint8_t* d = nullptr;
    int64_t d_stride = 0;
    OutputType dtype = OutputType::bf16;
    const float* alpha = nullptr;  // null: 1
    int alpha_stride = 0;          // from group to group
    Addend bias = {};
    int64_t bias_stride = 0;           // from group to group
    const float* row_scale = nullptr;  // null: 1
    Addend c = {};
    int64_t c_stride = 0;

    // A row of D, and its factors.
    struct Row {
        int row;
        float alpha, scale;
    };
    __device__ __forceinline__ Row row_of(int row, int group, bool exists) const {
        return {row, alpha_of(group), exists ? scale_of(row) : 1};
    }
    __device__ __forceinline__ float alpha_of(int group) const { return alpha == nullptr ? 1 : alpha[group * alpha_stride]; }
    __device__ __forceinline__ float scale_of(int row) const { return row_scale == nullptr ? 1 : row_scale[row]; }

    // `column` counts the rows of B. It is D's column, unless D is made of gates and ups.
    __device__ __forceinline__ float with_bias(float sum, const Row& row, int group, int column) const {
        if (alpha != nullptr) sum = __fmul_rn(sum, row.alpha);
        if (bias.first != nullptr) sum = __fadd_rn(sum, bias.at(group * bias_stride + column));
        return sum;
    }
    __device__ __forceinline__ void add_bias_to_eight(float* eight, const Row& row, int group, int column) const {
#pragma unroll
        for (int i = 0; i < 8; i++) eight[i] = __fmul_rn(eight[i], row.alpha);
        if (bias.first == nullptr) return;
        float added[8];
        bias.eight_at(group * bias_stride + column, added);
#pragma unroll
        for (int i = 0; i < 8; i++) eight[i] = __fadd_rn(eight[i], added[i]);
    }
    __device__ __forceinline__ float finished(float sum, const Row& row, int group, int column) const {
        sum = with_bias(sum, row, group, column);
        if (row_scale != nullptr) sum = __fmul_rn(sum, row.scale);
        if (c.first != nullptr) sum = __fadd_rn(sum, c.at(row.row * c_stride + column));
        return sum;
    }

    // The first `count` of neighbouring columns of a row. The loop's first pass adds the bias, the second c: both are one piece of code.
    template <int COUNT>
    __device__ __forceinline__ void finish_columns(float (&sums)[COUNT], const Row& row, int group, int column, int count) const {
        multiply_all(sums, row.alpha);  // 1 if there is no alpha
        if (bias.first == nullptr && row_scale == nullptr && c.first == nullptr) return;
#pragma unroll 1
        for (int last = 0; last < 2; last++) {
            const Addend added{last ? c.first : bias.first, last ? c.is_bf16 : bias.is_bf16};
            if (added.first != nullptr) added.add_to(sums, (last ? row.row * c_stride : group * bias_stride) + column, 1, count);
            if (!last) multiply_all(sums, row.scale);
        }
    }

    // The first `count` of neighbouring rows of a column.
    template <int COUNT>
    __device__ __forceinline__ void finish_rows(float (&sums)[COUNT], int row, int group, int column, int count) const {
        if (alpha != nullptr) multiply_all(sums, alpha_of(group));
        if (bias.first != nullptr) {
            const float added = bias.at(group * bias_stride + column);
#pragma unroll
            for (int i = 0; i < COUNT; i++) sums[i] = __fadd_rn(sums[i], added);
        }
        if (row_scale != nullptr) {
#pragma unroll
            for (int i = 0; i < COUNT; i++) sums[i] = __fmul_rn(sums[i], i < count ? row_scale[row + i] : 0);
        }
        if (c.first != nullptr) c.add_to(sums, row * c_stride + column, c_stride, count);
    }

    // Stores the first `count` of neighbouring columns of a row. `count` is a multiple of 8.
    template <int COUNT>
    __device__ __forceinline__ void store_columns(const float (&values)[COUNT], int row, int column, int count) const {
        const int64_t at = row * d_stride + column;
        if (dtype == OutputType::f32) {
            store_sectors(d + at * 4, reinterpret_cast<const uint32_t (&)[COUNT]>(values), count * 4);
        } else {
            uint32_t words[COUNT / 2];
#pragma unroll
            for (int i = 0; i < COUNT; i += 2) words[i / 2] = to_16_bits(values[i], values[i + 1]);
            store_sectors(d + at * 2, words, count * 2);
        }
    }

    template <int COUNT>
    __device__ __forceinline__ void store_rows(const float (&values)[COUNT], int row, int column, int count) const {
        const int64_t at = row * d_stride + column;
        if (dtype == OutputType::f32) {
#pragma unroll
            for (int i = 0; i < COUNT; i++)
                if (i < count) reinterpret_cast<float*>(d)[at + i * d_stride] = values[i];
        } else {
#pragma unroll
            for (int i = 0; i < COUNT; i += 2) {
                const uint32_t two = to_16_bits(values[i], values[i + 1]);
                uint16_t* to = reinterpret_cast<uint16_t*>(d) + at + i * d_stride;
                if (i < count) *to = uint16_t(two);
                if (i + 1 < count) to[d_stride] = uint16_t(two >> 16);
            }
        }
    }

    __device__ __forceinline__ void store_one(float value, int row, int column) const {
        const int64_t at = row * d_stride + column;
        if (dtype == OutputType::f32)
            reinterpret_cast<float*>(d)[at] = value;
        else
            reinterpret_cast<uint16_t*>(d)[at] = uint16_t(to_16_bits(value, 0));
    }

   private:
    __device__ __forceinline__ uint32_t to_16_bits(float first, float second) const {
        return dtype == OutputType::bf16 ? encode_two<bf16>(first, second) : encode_two<f16>(first, second);
    }

    template <int COUNT>
    __device__ __forceinline__ static void multiply_all(float (&sums)[COUNT], float factor) {
#pragma unroll
        for (int i = 0; i < COUNT; i++) sums[i] = __fmul_rn(sums[i], factor);
    }
};

}  // namespace zoo
