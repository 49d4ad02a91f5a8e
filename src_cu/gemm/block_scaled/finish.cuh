// From f32 sums to elements of D: times alpha, plus bias, times the row's factor, plus C, each rounded to f32; then once to D's dtype.
#pragma once

#include <cstdint>

#include "common/global_memory.cuh"
#include "common/half.cuh"

namespace zoo {

enum class Stored : int { bf16, f16, f32 };

// f32 or bf16, as the launch says.
struct Numbers {
    const uint8_t* first;  // null: there are none
    int is_bf16;

    __device__ __forceinline__ float at(int64_t index) const {
        if (!is_bf16) return reinterpret_cast<const float*>(first)[index];
        return __uint_as_float(uint32_t(reinterpret_cast<const uint16_t*>(first)[index]) << 16);
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

    // Eight neighbouring elements, 16 bytes or twice that.
    __device__ __forceinline__ void store_eight(float (&sums)[8], const Row& of, int group, int column) const {
#pragma unroll
        for (int i = 0; i < 8; i++) sums[i] = finished(sums[i], of, group, column + i);
        store_eight_finished(sums, of.row, column);
    }

    __device__ __forceinline__ void store_eight_finished(const float* sums, int row, int column) const {
        const int64_t at = row * d_stride + column;
        if (dtype == Stored::f32) {
            store_16_bytes(d + at * 4, reinterpret_cast<const uint32_t*>(sums));
            store_16_bytes(d + at * 4 + 16, reinterpret_cast<const uint32_t*>(sums) + 4);
            return;
        }
        uint32_t words[4];
#pragma unroll
        for (int i = 0; i < 4; i++)
            words[i] = dtype == Stored::bf16 ? encode_pair<bf16>(sums[2 * i], sums[2 * i + 1])
                                             : encode_pair<f16>(sums[2 * i], sums[2 * i + 1]);
        store_16_bytes(d + at * 2, words);
    }

    __device__ __forceinline__ void store_one(float sum, const Row& of, int group, int column) const {
        store_one_finished(finished(sum, of, group, column), of.row, column);
    }

    __device__ __forceinline__ void store_one_finished(float sum, int row, int column) const {
        const int64_t at = row * d_stride + column;
        if (dtype == Stored::f32)
            reinterpret_cast<float*>(d)[at] = sum;
        else
            reinterpret_cast<uint16_t*>(d)[at] =
                uint16_t(dtype == Stored::bf16 ? encode_pair<bf16>(sum, 0) : encode_pair<f16>(sum, 0));
    }
};

}  // namespace zoo
