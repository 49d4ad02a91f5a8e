// The epilogue of GEMMs with 4-bit weights: from f32 sums to D. Each step is rounded to f32, and omitted where the call has no such argument:
//
//     (sum * a_scale[token] * factor[weight row] + bias[weight row]) * row_scale[token], rounded to D's type
//
// The factor is alpha of the group times 8 (nvfp4) or 2^(largest scale of the weight row - 133) (mxfp4): zoo/reference/four_bit_gemm.py.
// Included by all pipelines of hopper_w4.
#pragma once

#include <cstdint>

#include "common/async_copy.cuh"
#include "common/half.cuh"
#include "common/matrix_store.cuh"
#include "common/variant.cuh"
#include "common/wgmma.cuh"
#include "gemm/hopper_w4/operands.cuh"
#include "gemm/schedule/tile_schedule.cuh"

namespace zoo {

enum class OutputType : int { bf16, f16, f32 };

template <WeightFormat FORMAT>
struct FourBitResult {
    uint8_t* d;
    int64_t stride;
    OutputType type;
    int columns;
    const float* a_scale;  // this pointer and the pointers below may be null
    const int* index;      // gathered rows: the row of a_scale for each row of D
    int a_rows;
    const float* alpha;
    const uint8_t* largest;
    const uint8_t* bias;
    bool bias_is_bf16;
    const float* row_scale;

    // The result of a group: pointers to the factors of its weights.
    __device__ __forceinline__ FourBitResult of(int group) const {
        FourBitResult result = *this;
        if (alpha != nullptr) result.alpha += group;
        if (FORMAT == WeightFormat::mxfp4)
            result.largest += int64_t(group) * ((columns + CHUNK_ROWS - 1) / CHUNK_ROWS * CHUNK_ROWS);
        if (bias != nullptr) result.bias += int64_t(group) * columns * (bias_is_bf16 ? 2 : 4);
        return result;
    }

    // Most calls have bf16 D and neither bias nor row_scale. basic() makes that known to the compiler, which then omits the branches.
    __device__ __forceinline__ bool is_basic() const {
        return type == OutputType::bf16 && bias == nullptr && row_scale == nullptr;
    }
    __device__ __forceinline__ FourBitResult basic() const {
        FourBitResult result = *this;
        result.type = OutputType::bf16, result.bias = nullptr, result.row_scale = nullptr;
        return result;
    }

    __device__ __forceinline__ float factor(int column) const {
        return factor_of(alpha != nullptr ? *alpha : 1.0f, largest, column);
    }
    __device__ __forceinline__ float bias_of(int column) const { return bias_at(bias, column); }

    static __device__ __forceinline__ float factor_of(float alpha, const uint8_t* largest, int column) {
        if constexpr (FORMAT == WeightFormat::nvfp4) return __fmul_rn(alpha, 8.0f);
        const int exponent = largest[column] - 6;  // biased by 127
        return __fmul_rn(alpha, __uint_as_float(exponent > 0 ? exponent << 23 : 1 << (22 + exponent)));
    }
    __device__ __forceinline__ float bias_at(const uint8_t* first, int column) const {
        const uint8_t* place = first + column * (bias_is_bf16 ? 2 : 4);
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
    __device__ __forceinline__ uint32_t encode(float first, float second) const {
        return type == OutputType::bf16 ? encode_two<bf16>(first, second) : encode_two<f16>(first, second);
    }
    __device__ __forceinline__ uint8_t* at(int row, int column) const {
        return d + (row * stride + column) * (type == OutputType::f32 ? 4 : 2);
    }
};

// Called by gemm/epilogue/pushed_sums.cuh for eight neighbouring weight rows. Missing arguments become a factor 1 or a bias -0, which change no sum:
// that is shorter than branches.
template <WeightFormat FORMAT>
__device__ __forceinline__ void finish_eight(const FourBitResult<FORMAT>& d, int row, int column, float (&sums)[8]) {
    const float of_token = d.a_scale != nullptr ? d.a_scale_of(row) : 1.0f;
    const float of_row = d.row_scale != nullptr ? d.row_scale[row] : 1.0f;
    float biases[8];
#pragma unroll
    for (int i = 0; i < 8; i++) biases[i] = -0.0f;
    if (d.bias != nullptr)
#pragma unroll
        for (int i = 0; i < 8; i++) biases[i] = d.bias_of(column + i);
#pragma unroll
    for (int i = 0; i < 8; i++) {
        const float scaled = __fmul_rn(__fmul_rn(sums[i], of_token), d.factor(column + i));
        sums[i] = __fmul_rn(__fadd_rn(scaled, biases[i]), of_row);
    }
}

template <WeightFormat FORMAT>
__device__ __forceinline__ void store_eight(const FourBitResult<FORMAT>& d, int row, int column, const float (&values)[8]) {
    uint4* place = reinterpret_cast<uint4*>(d.at(row, column));
    if (d.type == OutputType::f32) {
        reinterpret_cast<float4*>(place)[0] = make_float4(values[0], values[1], values[2], values[3]);
        reinterpret_cast<float4*>(place)[1] = make_float4(values[4], values[5], values[6], values[7]);
    } else {
        *place = make_uint4(d.encode(values[0], values[1]), d.encode(values[2], values[3]), d.encode(values[4], values[5]),
                            d.encode(values[6], values[7]));
    }
}

// The factors and biases of a tile, copied to shared memory during the loop over K. Reading them from global memory in the epilogue would take as
// long as one or two K blocks.
template <int TOKENS, int WEIGHTS>
struct EpilogueFactors {
    float a_scales[TOKENS], row_scales[TOKENS];
    alignas(4) uint8_t biases[WEIGHTS * 4], largest[WEIGHTS];
    float alpha;

    // Called by `threads` threads. Rows that do not exist get zeros.
    template <WeightFormat FORMAT>
    __device__ __forceinline__ void prefetch_token_factors(const FourBitResult<FORMAT>& d, const Work& work, int thread,
                                                           int threads) {
#pragma unroll 1
        for (int token = thread; token < TOKENS; token += threads) {
            const int row = work.token + token;
            const bool exists = row < work.end_token;
            if (d.a_scale != nullptr) {
                int of_a = exists ? row : -1;
                if (d.index != nullptr && exists) of_a = d.index[row];
                const bool in_a = uint32_t(of_a) < uint32_t(d.index != nullptr ? d.a_rows : work.end_token);
                copy_4_bytes(shared_address(a_scales + token), d.a_scale + (in_a ? of_a : 0), in_a);
            }
            if (d.row_scale != nullptr)
                copy_4_bytes(shared_address(row_scales + token), d.row_scale + (exists ? row : 0), exists);
        }
    }
    // Called by the lanes of a warp or by more threads, which copy four bytes each. `d` is the result of the group. Missing weight rows get zeros.
    template <WeightFormat FORMAT>
    __device__ __forceinline__ void prefetch_weight_factors(const FourBitResult<FORMAT>& d, int first_weight, int thread) {
        auto prefetch = [&](uint8_t* to, const uint8_t* from, uint32_t size) {
            const uint32_t byte = thread * 4, behind = first_weight * size + byte;
            const bool exists = behind < uint32_t(d.columns) * size;
            if (byte < WEIGHTS * size) copy_4_bytes(shared_address(to + byte), from + (exists ? behind : 0), exists);
        };
        if (d.bias != nullptr) prefetch(biases, d.bias, d.bias_is_bf16 ? 2 : 4);
        if constexpr (FORMAT == WeightFormat::mxfp4) prefetch(largest, d.largest, 1);
        if (d.alpha != nullptr && thread == 0) copy_4_bytes(shared_address(&alpha), d.alpha, true);
    }

    // Returns `d`, the result of the group, with pointers to the copies in shared memory.
    template <WeightFormat FORMAT>
    __device__ __forceinline__ FourBitResult<FORMAT> in(FourBitResult<FORMAT> d, const Work& work, int first_weight) const {
        if (d.a_scale != nullptr) d.a_scale = a_scales - work.token;
        d.index = nullptr;
        if (d.row_scale != nullptr) d.row_scale = row_scales - work.token;
        if (d.bias != nullptr) d.bias = biases - int64_t(first_weight) * (d.bias_is_bf16 ? 2 : 4);
        if (d.alpha != nullptr) d.alpha = &alpha;
        if constexpr (FORMAT == WeightFormat::mxfp4) d.largest = largest - first_weight;
        return d;
    }
};

// Shared memory of a warp. During the loop over K it holds factors. In the epilogue it holds a part of D: 16 weight rows of STEP tokens. A token has 32
// bytes, and tokens are 48 bytes apart, so that eight lanes have no bank conflicts when they write or read.
template <class Tile>
union alignas(16) StagedOutput {
    static constexpr int PITCH = 48, STEP = Tile::TOKENS < 64 ? 16 : 32;
    uint8_t bytes[STEP * PITCH];
    EpilogueFactors<Tile::TOKENS, 16> factors;

    template <WeightFormat FORMAT>
    __device__ __forceinline__ void prefetch_token_factors(const FourBitResult<FORMAT>& d, const Work& work) {
        __syncwarp();  // the previous tile has been read
        factors.prefetch_token_factors(d, work, reread_thread_index() % 32, 32);
    }
    template <WeightFormat FORMAT>
    __device__ __forceinline__ void prefetch_factors(const FourBitResult<FORMAT>& d, const Work& work) {
        prefetch_token_factors(d, work);
        const int thread = reread_thread_index();
        if (FORMAT == WeightFormat::mxfp4 || d.alpha != nullptr || d.bias != nullptr)
            factors.prefetch_weight_factors(d.of(work.group), work.weight + thread / 32 * 16, thread % 32);
    }
};

// Multiplies the sums of each token by the token's factor.
template <int SUMS>
__device__ __forceinline__ void scale_tokens(float (&sums)[SUMS], const float* factors, int lane) {
#pragma unroll
    for (int j = 0; j < SUMS; j += 4) {  // eight tokens
        const float2 two = *reinterpret_cast<const float2*>(factors + j * 2 + lane % 4 * 2);
#pragma unroll
        for (int i = 0; i < 4; i++) sums[j + i] = __fmul_rn(sums[j + i], i % 2 == 0 ? two.x : two.y);
    }
}

// Stores a warp's sums as bf16 or f16. The type is tested once for each STEP tokens: a copy of the code for each type would take 1 to 19 KB more.
template <class Tile, WeightFormat FORMAT>
__device__ __forceinline__ void store_16_bit(const FourBitResult<FORMAT>& d, StagedOutput<Tile>& staged, const Work& work,
                                             int first_weight, int lane, const float (&sums)[Tile::SUMS]) {
    using Staged = StagedOutput<Tile>;
    uint8_t* to = staged.bytes + (lane / 16 * 8 + lane % 8) * Staged::PITCH + lane / 8 % 2 * 16;
    const uint8_t* from = staged.bytes + lane / 2 * Staged::PITCH + lane % 2 * 16;
    const int column = first_weight + lane % 2 * 8, left = column < d.columns ? work.end_token - work.token - lane / 2 : 0;
    uint8_t* place = d.at(work.token + lane / 2, column);
#pragma unroll
    for (int first = 0; first < Tile::TOKENS; first += Staged::STEP) {
        constexpr int COUNT = Staged::STEP / 16;
        // A matrix has 8 tokens x 8 weight rows: [0] and [1] weight rows 0-7 and 8-15 of tokens 0-7, [2] and [3] those of tokens 8-15.
        uint32_t matrices[COUNT][4];
        auto encode = [&]<class Half>() {
#pragma unroll
            for (int m = 0; m < COUNT * 4; m++) {
                const int j = min(first / 2 + m / 2 * 4, Tile::SUMS - 4) + m % 2 * 2;
                matrices[m / 4][m % 4] = encode_two<Half>(sums[j], sums[j + 1]);
            }
        };
        if (d.type == OutputType::bf16)
            encode.template operator()<bf16>();
        else
            encode.template operator()<f16>();
        __syncwarp();  // the previous tokens have been read
#pragma unroll
        for (int i = 0; i < COUNT; i++)
            if (first + i * 16 < Tile::TOKENS)
                store_matrices_transposed<4>(shared_address(to + i * 16 * Staged::PITCH), matrices[i]);
        __syncwarp();
#pragma unroll
        for (int next = first; next < min(first + Staged::STEP, Tile::TOKENS); next += 16)
            if (next < left && next + lane / 2 < Tile::TOKENS)
                *reinterpret_cast<uint4*>(place + next * d.stride * 2) =
                    *reinterpret_cast<const uint4*>(from + (next - first) * Staged::PITCH);
    }
}

// Called by a warpgroup with complete sums: each warp stores 16 weight rows of all tokens. The warp has called prefetch_factors().
template <class Tile, WeightFormat FORMAT>
__device__ __forceinline__ void finish_and_store(const FourBitResult<FORMAT>& d, StagedOutput<Tile>& staged, const Work& work,
                                                 float (&sums)[Tile::SUMS]) {
    const int thread = reread_thread_index(), lane = thread % 32, first_weight = work.weight + thread / 32 * 16;
    wait_for_copies();
    __syncwarp();
    if (first_weight >= d.columns) return;
    float factors[2], biases[2];
#pragma unroll
    for (int h = 0; h < 2; h++) {
        const int weight = lane / 4 + 8 * h;
        factors[h] = d.factor_of(d.alpha != nullptr ? staged.factors.alpha : 1.0f, staged.factors.largest, weight);
        biases[h] = d.bias != nullptr ? d.bias_at(staged.factors.biases, weight) : 0.0f;
    }
    if (d.a_scale != nullptr) scale_tokens(sums, staged.factors.a_scales, lane);
#pragma unroll
    for (int j = 0; j < Tile::SUMS; j++) sums[j] = __fmul_rn(sums[j], factors[j / 2 % 2]);
    if (d.bias != nullptr)
#pragma unroll
        for (int j = 0; j < Tile::SUMS; j++) sums[j] = __fadd_rn(sums[j], biases[j / 2 % 2]);
    if (d.row_scale != nullptr) scale_tokens(sums, staged.factors.row_scales, lane);
    if (d.type != OutputType::f32) return store_16_bit<Tile>(d, staged, work, first_weight, lane, sums);
#pragma unroll
    for (int j = 0; j < Tile::SUMS; j++) {
        const int row = work.token + accumulator_column(j, thread), column = first_weight + lane / 4 + j / 2 % 2 * 8;
        if (row < work.end_token && column < d.columns) *reinterpret_cast<float*>(d.at(row, column)) = sums[j];
    }
}

}  // namespace zoo
