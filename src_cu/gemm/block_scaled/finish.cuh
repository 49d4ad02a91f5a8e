// From f32 sums to elements of D: times alpha, plus bias, times the row's factor, plus C, each rounded to f32; then once to D's dtype.
#pragma once

#include <cstdint>

#include "common/global_memory.cuh"
#include "common/half.cuh"

namespace zoo {

constexpr int SEGMENT = 32;  // columns of a row that a thread has, where results are made of several

enum class Stored : int { bf16, f16, f32 };

// f32 or bf16, as the launch says.
struct Numbers {
    const uint8_t* first;  // null: there are none
    int is_bf16;

    __device__ __forceinline__ float at(int64_t index) const {
        if (!is_bf16) return reinterpret_cast<const float*>(first)[index];
        return __uint_as_float(uint32_t(reinterpret_cast<const uint16_t*>(first)[index]) << 16);
    }

    // To each of the first `count` sums its number: the first at `index`, the others `step` apart.
    template <int COUNT>
    __device__ __forceinline__ void add_to(float (&sums)[COUNT], int64_t index, int64_t step, int count) const {
        if (is_bf16)
            add_each<uint16_t>(sums, index, step, count);
        else
            add_each<uint32_t>(sums, index, step, count);
    }

    // Eight neighbours from a multiple of 8 on, where the first of all is 16-byte aligned.
    __device__ __forceinline__ void eight_at(int64_t index, float (&eight)[8]) const {
        const uint8_t* place = first + index * (is_bf16 ? 2 : 4);
        const uint4 four = load_16_bytes(place);
        const uint32_t words[4] = {four.x, four.y, four.z, four.w};
        if (is_bf16) {
#pragma unroll
            for (int i = 0; i < 4; i++) {
                const float2 two = decode_pair<bf16>(words[i]);
                eight[2 * i] = two.x;
                eight[2 * i + 1] = two.y;
            }
        } else {
            const uint4 others = load_16_bytes(place + 16);
            const uint32_t more[4] = {others.x, others.y, others.z, others.w};
#pragma unroll
            for (int i = 0; i < 4; i++) {
                eight[i] = __uint_as_float(words[i]);
                eight[4 + i] = __uint_as_float(more[i]);
            }
        }
    }

   private:
    // Word: the upper half of an f32, or all of it.
    template <class Word, int COUNT>
    __device__ __forceinline__ void add_each(float (&sums)[COUNT], int64_t index, int64_t step, int count) const {
        const Word* place = reinterpret_cast<const Word*>(first) + index;
#pragma unroll
        for (int i = 0; i < COUNT; i++) {
            const uint32_t bits = i < count ? uint32_t(place[i * step]) << (32 - 8 * sizeof(Word)) : 0;
            sums[i] = __fadd_rn(sums[i], __uint_as_float(bits));
        }
    }
};

struct Finish {
    uint8_t* d;
    int64_t d_stride;
    Stored dtype;
    const float* alpha;  // null: 1
    int alpha_stride;    // 0: one for all groups
    Numbers bias;
    int64_t bias_stride;  // from group to group
    const float* row_scale;
    Numbers c;
    int64_t c_stride;

    // What all columns of a row share.
    struct Row {
        int row;
        float alpha, factor;
    };
    __device__ __forceinline__ float alpha_of(int group) const { return alpha == nullptr ? 1 : alpha[group * alpha_stride]; }
    __device__ __forceinline__ float factor_of(int row) const { return row_scale == nullptr ? 1 : row_scale[row]; }

    // `column` of the product, which is D's where nothing is made of two sums.
    __device__ __forceinline__ float with_bias(float sum, const Row& of, int group, int column) const {
        if (alpha != nullptr) sum = __fmul_rn(sum, of.alpha);
        if (bias.first != nullptr) sum = __fadd_rn(sum, bias.at(group * bias_stride + column));
        return sum;
    }
    // The same of eight neighbours.
    __device__ __forceinline__ void add_bias(float* eight, const Row& of, int group, int column) const {
#pragma unroll
        for (int i = 0; i < 8; i++) eight[i] = __fmul_rn(eight[i], of.alpha);  // 1, where there is none
        if (bias.first == nullptr) return;
        float added[8];
        bias.eight_at(group * bias_stride + column, added);
#pragma unroll
        for (int i = 0; i < 8; i++) eight[i] = __fadd_rn(eight[i], added[i]);
    }
    __device__ __forceinline__ float finished(float sum, const Row& of, int group, int column) const {
        sum = with_bias(sum, of, group, column);
        if (row_scale != nullptr) sum = __fmul_rn(sum, of.factor);
        if (c.first != nullptr) sum = __fadd_rn(sum, c.at(of.row * c_stride + column));
        return sum;
    }

    // Neighbouring columns of a row, of which the first `count` are there. One pass for each thing that there is, over all of them; what
    // alpha and bias do, row_scale and c do after them, by the same instructions.
    template <int COUNT>
    __device__ __forceinline__ void finish_columns(float (&sums)[COUNT], const Row& of, int group, int column, int count) const {
#pragma unroll 1
        for (int last = 0; last < 2; last++) {
            if (last ? row_scale != nullptr : alpha != nullptr) multiply_all(sums, last ? of.factor : of.alpha);
            const Numbers added{last ? c.first : bias.first, last ? c.is_bf16 : bias.is_bf16};
            if (added.first != nullptr) added.add_to(sums, (last ? of.row * c_stride : group * bias_stride) + column, 1, count);
        }
    }

    // A column of neighbouring rows.
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

    // Finished; 16 bytes an access. `count`: a multiple of 8.
    template <int COUNT>
    __device__ __forceinline__ void store_columns(const float (&sums)[COUNT], int row, int column, int count) const {
        const int64_t at = row * d_stride + column;
        if (dtype == Stored::f32) {
#pragma unroll
            for (int i = 0; i < COUNT; i += 4)
                if (i < count) store_16_bytes(d + (at + i) * 4, reinterpret_cast<const uint32_t*>(&sums[i]));
        } else {
#pragma unroll
            for (int i = 0; i < COUNT; i += 8) {
                const uint32_t words[4] = {pair(sums[i], sums[i + 1]), pair(sums[i + 2], sums[i + 3]),
                                           pair(sums[i + 4], sums[i + 5]), pair(sums[i + 6], sums[i + 7])};
                if (i < count) store_16_bytes(d + (at + i) * 2, words);
            }
        }
    }

    template <int COUNT>
    __device__ __forceinline__ void store_rows(const float (&sums)[COUNT], int row, int column, int count) const {
        const int64_t at = row * d_stride + column;
        if (dtype == Stored::f32) {
#pragma unroll
            for (int i = 0; i < COUNT; i++)
                if (i < count) reinterpret_cast<float*>(d)[at + i * d_stride] = sums[i];
        } else {
#pragma unroll
            for (int i = 0; i < COUNT; i += 2) {
                const uint32_t two = pair(sums[i], sums[i + 1]);
                uint16_t* place = reinterpret_cast<uint16_t*>(d) + at + i * d_stride;
                if (i < count) *place = uint16_t(two);
                if (i + 1 < count) place[d_stride] = uint16_t(two >> 16);
            }
        }
    }

    __device__ __forceinline__ void store_one(float sum, const Row& of, int group, int column) const {
        store_one_finished(finished(sum, of, group, column), of.row, column);
    }

    __device__ __forceinline__ void store_one_finished(float sum, int row, int column) const {
        const int64_t at = row * d_stride + column;
        if (dtype == Stored::f32)
            reinterpret_cast<float*>(d)[at] = sum;
        else
            reinterpret_cast<uint16_t*>(d)[at] = uint16_t(pair(sum, 0));
    }

   private:
    // In D's dtype of 16 bits.
    __device__ __forceinline__ uint32_t pair(float first, float second) const {
        return dtype == Stored::bf16 ? encode_pair<bf16>(first, second) : encode_pair<f16>(first, second);
    }

    template <int COUNT>
    __device__ __forceinline__ static void multiply_all(float (&sums)[COUNT], float factor) {
#pragma unroll
        for (int i = 0; i < COUNT; i++) sums[i] = __fmul_rn(sums[i], factor);
    }
};

}  // namespace zoo
