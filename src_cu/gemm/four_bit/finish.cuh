// From sums to D: what does not depend on K. Each step is rounded to f32, and left out where the call has no such argument:
//
//     sum * a_scale of the token * (factor of the weight) + bias of the weight, * row_scale of the token, rounded to D's type
//
// The factor is alpha of the group times 8 (nvfp4) or 2^(largest scale of the row - 133) (mxfp4): zoo/reference/four_bit_gemm.py.
#pragma once

#include <cstdint>

#include "common/half.cuh"
#include "common/variant.cuh"
#include "common/wgmma.cuh"
#include "gemm/four_bit/tile.cuh"
#include "gemm/operands.cuh"

namespace zoo {

enum ResultKind { IS_BF16, IS_F16, IS_F32 };

template <Weights FORMAT>
struct FourBitResult {
    uint8_t* d;
    int64_t stride;
    int kind, columns;
    const float* a_scale;  // this and all below may be null
    const int* index;      // row of a_scale for a row of D
    int a_rows;
    const float* alpha;
    const uint8_t* largest;
    const uint8_t* bias;
    bool bias_is_bf16;
    const float* row_scale;

    // Of one group's weights.
    __device__ __forceinline__ FourBitResult of(int group) const {
        FourBitResult result = *this;
        if (alpha != nullptr) result.alpha += group;
        if (FORMAT == Weights::mxfp4) result.largest += int64_t(group) * ((columns + CHUNK_ROWS - 1) / CHUNK_ROWS * CHUNK_ROWS);
        if (bias != nullptr) result.bias += int64_t(group) * columns * (bias_is_bf16 ? 2 : 4);
        return result;
    }

    __device__ __forceinline__ float factor(int column) const {
        const float factor = alpha != nullptr ? *alpha : 1.0f;
        if constexpr (FORMAT == Weights::nvfp4) return __fmul_rn(factor, 8.0f);
        const int exponent = largest[column] - 6;  // + 127
        return __fmul_rn(factor, __uint_as_float(exponent > 0 ? exponent << 23 : 1 << (22 + exponent)));
    }
    __device__ __forceinline__ float bias_of(int column) const {
        const uint8_t* place = bias + column * (bias_is_bf16 ? 2 : 4);
        if (bias_is_bf16) return __uint_as_float(*reinterpret_cast<const uint16_t*>(place) << 16);
        return *reinterpret_cast<const float*>(place);
    }
    __device__ __forceinline__ float a_scale_of(int row) const {
        if (index != nullptr) {
            row = index[row];
            if (uint32_t(row) >= uint32_t(a_rows)) return 1.0f;  // a row of zeros
        }
        return a_scale[row];
    }
    __device__ __forceinline__ uint32_t pair(float first, float second) const {
        return kind == IS_BF16 ? encode_pair<bf16>(first, second) : encode_pair<f16>(first, second);
    }
    __device__ __forceinline__ uint8_t* at(int row, int column) const {
        return d + (row * stride + column) * (kind == IS_F32 ? 4 : 2);
    }
};

// Of a cluster's CTAs: gemm/pushed_sums.cuh.
template <Weights FORMAT>
__device__ __forceinline__ void finish_eight(const FourBitResult<FORMAT>& d, int row, int column, float (&sums)[8]) {
#pragma unroll
    for (int i = 0; i < 8; i++) {
        if (d.a_scale != nullptr) sums[i] = __fmul_rn(sums[i], d.a_scale_of(row));
        sums[i] = __fmul_rn(sums[i], d.factor(column + i));
        if (d.bias != nullptr) sums[i] = __fadd_rn(sums[i], d.bias_of(column + i));
        if (d.row_scale != nullptr) sums[i] = __fmul_rn(sums[i], d.row_scale[row]);
    }
}

template <Weights FORMAT>
__device__ __forceinline__ void store_eight(const FourBitResult<FORMAT>& d, int row, int column, const float (&values)[8]) {
    uint4* place = reinterpret_cast<uint4*>(d.at(row, column));
    if (d.kind == IS_F32) {
        reinterpret_cast<float4*>(place)[0] = make_float4(values[0], values[1], values[2], values[3]);
        reinterpret_cast<float4*>(place)[1] = make_float4(values[4], values[5], values[6], values[7]);
    } else {
        *place = make_uint4(d.pair(values[0], values[1]), d.pair(values[2], values[3]), d.pair(values[4], values[5]),
                            d.pair(values[6], values[7]));
    }
}

// Of one warp: 16 tokens of its 16 weights, 32 bytes a token, 48 apart, so that neither way two lanes of eight meet in a bank.
struct alignas(16) StagedTokens {
    static constexpr int PITCH = 48;
    uint8_t bytes[16 * PITCH];
};

__device__ __forceinline__ void store_matrices_transposed(void* row, const uint32_t (&matrices)[4]) {
    asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(shared_address(row)),
                 "r"(matrices[0]), "r"(matrices[1]), "r"(matrices[2]), "r"(matrices[3])
                 : "memory");
}

// By a warpgroup whose sums are whole: each warp its 16 weights of all tokens.
template <class Tile, Weights FORMAT>
__device__ __forceinline__ void finish_and_store(const FourBitResult<FORMAT>& d, StagedTokens& staged, const Work& work,
                                                 float (&sums)[Tile::SUMS]) {
    const int thread = thread_index_anew(), lane = thread % 32, first_weight = work.weight + thread / 32 * 16;
    if (first_weight >= d.columns) return;
    float factors[2], biases[2];
#pragma unroll
    for (int h = 0; h < 2; h++) {
        const int column = min(first_weight + lane / 4 + 8 * h, d.columns - 1);
        factors[h] = d.factor(column);
        biases[h] = d.bias != nullptr ? d.bias_of(column) : 0.0f;
    }
#pragma unroll
    for (int j = 0; j < Tile::SUMS; j += 4) {  // eight tokens
#pragma unroll
        for (int t = 0; t < 2; t++) {
            const int row = work.token + accumulator_column(j + t, thread);
            const bool exists = row < work.end_token;
            const float a_scale = d.a_scale != nullptr && exists ? d.a_scale_of(row) : 1.0f;
            const float row_scale = d.row_scale != nullptr && exists ? d.row_scale[row] : 1.0f;
#pragma unroll
            for (int h = 0; h < 2; h++) {
                float& sum = sums[j + 2 * h + t];
                sum = __fmul_rn(__fmul_rn(sum, a_scale), factors[h]);
                if (d.bias != nullptr) sum = __fadd_rn(sum, biases[h]);
                sum = __fmul_rn(sum, row_scale);
                if (d.kind == IS_F32 && exists && first_weight + lane / 4 + 8 * h < d.columns)
                    *reinterpret_cast<float*>(d.at(row, first_weight + lane / 4 + 8 * h)) = sum;
            }
        }
    }
    if (d.kind == IS_F32) return;
#pragma unroll
    for (int first = 0; first < Tile::TOKENS; first += 16) {
        uint32_t matrices[4];  // (eight tokens, eight weights): the second eight weights, then the second eight tokens
#pragma unroll
        for (int m = 0; m < 4; m++) {
            const int j = min(first / 2 + m / 2 * 4, Tile::SUMS - 4) + m % 2 * 2;
            matrices[m] = d.pair(sums[j], sums[j + 1]);
        }
        __syncwarp();  // those before have been read
        store_matrices_transposed(staged.bytes + (lane / 16 * 8 + lane % 8) * StagedTokens::PITCH + lane / 8 % 2 * 16, matrices);
        __syncwarp();
        const int token = lane / 2, row = work.token + first + token, column = first_weight + lane % 2 * 8;
        if (first + token < Tile::TOKENS && row < work.end_token && column < d.columns)
            *reinterpret_cast<uint4*>(d.at(row, column)) =
                *reinterpret_cast<const uint4*>(staged.bytes + token * StagedTokens::PITCH + lane % 2 * 16);
    }
}

}  // namespace zoo
