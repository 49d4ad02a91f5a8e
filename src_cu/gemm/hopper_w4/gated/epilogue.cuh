// Turns the f32 sums of gates and ups into h, and stores h in 16 bits. gated/pipeline.cuh and gated/fp8_output.cuh include this file. Each step is
// rounded to f32. A step whose argument the call leaves out is skipped:
//
//     gate, up    sum * a_scale of the token * (alpha and scale of the weight row) + bias of the weight row
//     h           activation(gate) * up * row_scale of the token
//
// The first 8 of a warp's 16 weight rows are gates, the other 8 are their ups. Packing orders rows so, and GateAndUp reads stored rows so. A lane
// has a gate and its up in registers two apart, so no exchange is needed. Rules: zoo/reference/four_bit_gemm.py, zoo/reference/swiglu.py.
#pragma once

#include <cstdint>

#include "common/half.cuh"
#include "common/nothing.cuh"
#include "gemm/epilogue/activation.cuh"
#include "gemm/epilogue/branchless_fp8b128.cuh"
#include "gemm/hopper_w4/epilogue.cuh"

namespace zoo {

// `sums` describes gates and ups: its columns are 2 * I. Its d is h, I columns wide.
template <WeightFormat FORMAT, bool STORED = false>
struct GatedResult {
    FourBitResult<FORMAT> sums;
    int alphas;        // of a group: 1, or 2 for a scale of gates and a scale of ups
    bool interleaved;  // bias and stored rows: each up follows its gate; else all gates come first
    bool limited;      // silu alone has no limit
    Activation activation;

    __device__ __forceinline__ int columns() const { return sums.columns / 2; }
    __device__ __forceinline__ bool largest_is_interleaved() const { return !STORED || interleaved; }
};

// The factors of eight gates and their ups in shared memory, bytes in the order of global memory. `alpha` is the gates'.
template <int TOKENS>
struct GateUpFactors : EpilogueFactors<TOKENS, 16> {
    float alpha_of_ups;

    // One warp calls this. `first`: a column of h, a multiple of 8.
    template <WeightFormat FORMAT, bool STORED>
    __device__ __forceinline__ void prefetch_column_factors(const GatedResult<FORMAT, STORED>& d, int group, int first,
                                                            int lane) {
        const FourBitResult<FORMAT> of_group = d.sums.of(group);
        auto prefetch = [&](uint8_t* to, const uint8_t* from, bool interleaved, int size) {
            const int byte = lane * 4, to_ups = byte >= 8 * size && !interleaved ? d.columns() - 8 : 0;
            if (byte < 16 * size)
                copy_4_bytes(shared_address(to + byte), from + (interleaved ? 2 * first : first + to_ups) * size + byte, true);
        };
        if (of_group.bias != nullptr) prefetch(this->biases, of_group.bias, d.interleaved, of_group.bias_is_bf16 ? 2 : 4);
        if constexpr (FORMAT == WeightFormat::mxfp4) prefetch(this->largest, of_group.largest, d.largest_is_interleaved(), 1);
        if (of_group.alpha != nullptr && lane < 2)
            copy_4_bytes(shared_address(lane == 0 ? &this->alpha : &alpha_of_ups),
                         of_group.alpha + (group + lane) * (d.alphas - 1), true);
    }

    // After the copies: factor and bias of the gate (half 0) or the up (half 1) of column c < 8.
    template <WeightFormat FORMAT, bool STORED>
    __device__ __forceinline__ void of_column(const GatedResult<FORMAT, STORED>& d, int c, int half, float& factor,
                                              float& bias) const {
        auto index = [&](bool interleaved) { return interleaved ? 2 * c + half : half * 8 + c; };
        const float alpha = d.sums.alpha == nullptr ? 1.0f : half == 0 ? this->alpha : alpha_of_ups;
        factor = d.sums.factor_of(alpha, this->largest, STORED ? index(d.interleaved) : half * 8 + c);
        bias = d.sums.bias == nullptr ? 0.0f : d.sums.bias_at(this->biases, index(d.interleaved));
    }
};

// Shared memory of one warp. It holds factors until the sums are complete, and then h of 32 tokens, 16 bytes a token.
template <class Tile>
union alignas(16) StagedGateUp {
    static constexpr int ROWS = 32, ROW = 16;
    uint8_t bytes[ROWS * ROW];
    GateUpFactors<Tile::TOKENS> factors;

    static __device__ __forceinline__ int first_column(const auto& d, const Work& work) {
        return min(work.weight / 2 + reread_thread_index() / 32 * 8, d.columns() - 8);
    }
    __device__ __forceinline__ void prefetch_factors(const auto& d, const Work& work) {
        __syncwarp();  // the warp has read h of the previous tile
        factors.prefetch_token_factors(d.sums, work, reread_thread_index() % 32, 32);
        factors.prefetch_column_factors(d, work.group, first_column(d, work), reread_thread_index() % 32);
    }
};

// One warp calls this when its sums are complete. A lane gets h of column lane / 4 of the warp's eight, and of two tokens of each eight, as
// accumulators have them. h is 0 beyond the last column.
template <class Tile>
__device__ __forceinline__ void activate(const auto& d, StagedGateUp<Tile>& staged, const Work& work, float (&sums)[Tile::SUMS],
                                         float (&h)[Tile::SUMS / 2]) {
    const int thread = reread_thread_index(), lane = thread % 32, first = work.weight / 2 + thread / 32 * 8;
    wait_for_copies();
    __syncwarp();
    float factors[2], biases[2];
#pragma unroll
    for (int half = 0; half < 2; half++) staged.factors.of_column(d, lane / 4, half, factors[half], biases[half]);
    if (d.sums.a_scale != nullptr) scale_tokens(sums, staged.factors.a_scales, lane);
#pragma unroll
    for (int j = 0; j < Tile::SUMS; j++) sums[j] = __fmul_rn(sums[j], factors[j / 2 % 2]);
    if (d.sums.bias != nullptr)
#pragma unroll
        for (int j = 0; j < Tile::SUMS; j++) sums[j] = __fadd_rn(sums[j], biases[j / 2 % 2]);
    auto gate = [&](int k) -> float& { return sums[k / 2 * 4 + k % 2]; };
    auto up = [&](int k) -> float& { return sums[k / 2 * 4 + k % 2 + 2]; };
    if (d.limited)
#pragma unroll
        for (int k = 0; k < Tile::SUMS / 2; k++) d.activation.limit_both(gate(k), up(k));
#pragma unroll
    for (int k = 0; k < Tile::SUMS / 2; k++) h[k] = d.activation.of_limited(gate(k), up(k));
    if (d.sums.row_scale != nullptr) {
#pragma unroll
        for (int k = 0; k < Tile::SUMS / 2; k += 2) {
            const float2 two = *reinterpret_cast<const float2*>(staged.factors.row_scales + k * 4 + lane % 4 * 2);
            h[k] = __fmul_rn(h[k], two.x), h[k + 1] = __fmul_rn(h[k + 1], two.y);
        }
    }
    if (first >= d.columns())
#pragma unroll
        for (int k = 0; k < Tile::SUMS / 2; k++) h[k] = 0;
}

// One warp stores its eight columns, 16 bytes a token, from column `first` on. stmatrix transposes them in the warp's shared memory.
template <class Tile, class Half, WeightFormat FORMAT>
__device__ __forceinline__ void store_h_as(const FourBitResult<FORMAT>& d, StagedGateUp<Tile>& staged, const Work& work,
                                           int first, int lane, const float (&h)[Tile::SUMS / 2]) {
    constexpr int STEP = StagedGateUp<Tile>::ROWS, LAST = Tile::SUMS / 2 - 2;  // STEP: tokens at once
    uint8_t* row = staged.bytes + lane * StagedGateUp<Tile>::ROW;
    uint8_t* to = d.at(work.token + lane, first);
    const int left = work.end_token - work.token - lane;
#pragma unroll
    for (int token = 0; token < Tile::TOKENS; token += STEP) {
        __syncwarp();  // the warp has read the previous rows
        uint32_t matrices[4];
#pragma unroll
        for (int m = 0; m < 4; m++) {
            const int k = min(token / 4 + m * 2, LAST);
            matrices[m] = encode_two<Half>(h[k], h[k + 1]);
        }
        store_matrices_transposed<4>(shared_address(row), matrices);
        __syncwarp();
        if (token < left && token + lane < Tile::TOKENS)
            *reinterpret_cast<uint4*>(to + token * d.stride * 2) = *reinterpret_cast<const uint4*>(row);
    }
}

template <class Tile>
__device__ __forceinline__ void store_h(const auto& d, StagedGateUp<Tile>& staged, const Work& work,
                                        const float (&h)[Tile::SUMS / 2]) {
    const int thread = reread_thread_index(), first = work.weight / 2 + thread / 32 * 8;
    if (first >= d.columns()) return;
    if (d.sums.type == OutputType::bf16)
        store_h_as<Tile, bf16>(d.sums, staged, work, first, thread % 32, h);
    else
        store_h_as<Tile, f16>(d.sums, staged, work, first, thread % 32, h);
}

// Stands in for Fp8Output in tiles that never quantise h.
struct NoFp8Output {
    using LeftTile = Nothing;

    __device__ __forceinline__ void initialise() {}
};

}  // namespace zoo
