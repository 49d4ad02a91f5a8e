// From sums of gates and of ups to h, f32: each step rounded, and left out where the call has no such argument:
//
//     gate, up    sum * a_scale of the token * (factor of the weight) + bias of the weight
//     h           of the two, as the activation says, * row_scale of the token
//
// Of a warp's 16 rows the first 8 are gates, the others their ups, as packed (pack.*.fragments) or as found (GateAndUp): so a lane has both of
// the same column of h, in registers two apart, and nothing is exchanged. Rules: zoo/reference/four_bit_gemm.py, zoo/reference/swiglu.py.
#pragma once

#include <cstdint>

#include "gemm/block_scaled/activation.cuh"
#include "gemm/four_bit/finish.cuh"

namespace zoo {

// Of `finish` the output is h's: rows of `columns` / 2.
template <Weights FORMAT, bool STORED = false>
struct GatedResult {
    FourBitResult<FORMAT> finish;
    int alphas;        // of a group: one, or one of gates and one of ups
    bool interleaved;  // how bias lies, and stored weights: gates and ups in turn, or all gates first
    bool limited;      // or silu, without limits
    Activation activation;

    __device__ __forceinline__ int columns() const { return finish.columns / 2; }

    // What the sums of a gate (0) or an up (1) of column c are multiplied by, and what is added then.
    __device__ __forceinline__ void of_column(int group, int c, int half, float& factor, float& bias) const {
        FourBitResult<FORMAT> mine = finish.of(group);
        if (mine.alpha != nullptr) mine.alpha += (group + half) * (alphas - 1);
        const int found = interleaved ? 2 * c + half : c + half * columns();
        factor = mine.factor(STORED ? found : c / 8 * 16 + half * 8 + c % 8);
        bias = mine.bias == nullptr ? 0.0f : mine.bias_of(found);
    }
};

// Of one warp, whose sums are whole and whose factors have been asked for: h of column lane / 4 of its eight and tokens as accumulators
// have them, two of each eight. Zeros beyond the last column.
template <class Tile>
__device__ __forceinline__ void activate(const auto& d, StagedTokens<Tile>& staged, const Work& work, float (&sums)[Tile::SUMS],
                                         float (&h)[Tile::SUMS / 2]) {
    const int thread = thread_index_anew(), lane = thread % 32, first = work.weight / 2 + thread / 32 * 8;
    wait_for_copies();
    __syncwarp();
    float factors[2], biases[2];
#pragma unroll
    for (int half = 0; half < 2; half++)
        d.of_column(work.group, min(first, d.columns() - 8) + lane / 4, half, factors[half], biases[half]);
    if (d.finish.a_scale != nullptr) multiply_tokens(sums, staged.factors.a_scales, lane);
#pragma unroll
    for (int j = 0; j < Tile::SUMS; j++) sums[j] = __fmul_rn(sums[j], factors[j / 2 % 2]);
    if (d.finish.bias != nullptr)
#pragma unroll
        for (int j = 0; j < Tile::SUMS; j++) sums[j] = __fadd_rn(sums[j], biases[j / 2 % 2]);
    auto of_each = [&](const auto& activation) {
#pragma unroll
        for (int k = 0; k < Tile::SUMS / 2; k++) h[k] = activation(sums[k / 2 * 4 + k % 2], sums[k / 2 * 4 + k % 2 + 2]);
    };
    if (d.limited)
        of_each(d.activation);
    else
        of_each([](float gate, float up) { return __fmul_rn(silu(gate), up); });
    if (d.finish.row_scale != nullptr) {
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

}  // namespace zoo
