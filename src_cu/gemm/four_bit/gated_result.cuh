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
    __device__ __forceinline__ bool largest_in_turn() const { return !STORED || interleaved; }
};

// What eight gates and their ups are finished with. Of both the bytes come as they lie: in turn, or the gates' before the ups'. `alpha`: of
// gates.
template <int TOKENS>
struct GatedFactors : Factors<TOKENS, 16> {
    float alpha_of_ups;

    // By a warp: of columns from `first`, a multiple of 8, on.
    template <Weights FORMAT, bool STORED>
    __device__ __forceinline__ void ask_for_columns(const GatedResult<FORMAT, STORED>& d, int group, int first, int lane) {
        const FourBitResult<FORMAT> mine = d.finish.of(group);
        auto ask = [&](uint8_t* to, const uint8_t* from, bool in_turn, int size) {
            const int byte = lane * 4, ups = byte >= 8 * size && !in_turn ? d.columns() - 8 : 0;
            if (byte < 16 * size)
                copy_4_bytes(shared_address(to + byte), from + (in_turn ? 2 * first : first + ups) * size + byte, true);
        };
        if (mine.bias != nullptr) ask(this->biases, mine.bias, d.interleaved, mine.bias_is_bf16 ? 2 : 4);
        if constexpr (FORMAT == Weights::mxfp4) ask(this->largest, mine.largest, d.largest_in_turn(), 1);
        if (mine.alpha != nullptr && lane < 2)
            copy_4_bytes(shared_address(lane == 0 ? &this->alpha : &alpha_of_ups), mine.alpha + (group + lane) * (d.alphas - 1),
                         true);
    }

    // When they have come: what the sums of the gate (0) or the up (1) of column c < 8 are multiplied by, and what is added then.
    template <Weights FORMAT, bool STORED>
    __device__ __forceinline__ void of_column(const GatedResult<FORMAT, STORED>& d, int c, int half, float& factor,
                                              float& bias) const {
        auto place = [&](bool in_turn) { return in_turn ? 2 * c + half : half * 8 + c; };
        const float alpha = d.finish.alpha == nullptr ? 1.0f : half == 0 ? this->alpha : alpha_of_ups;
        factor = d.finish.factor_of(alpha, this->largest, STORED ? place(d.interleaved) : half * 8 + c);
        bias = d.finish.bias == nullptr ? 0.0f : d.finish.bias_at(this->biases, place(d.interleaved));
    }
};

// Of one warp. Before its sums are whole: what they are finished with. Then h of some tokens, 16 bytes each.
template <class Tile>
union alignas(16) StagedGates {
    static constexpr int ROWS = 32, ROW = 16;
    uint8_t bytes[ROWS * ROW];
    GatedFactors<Tile::TOKENS> factors;

    static __device__ __forceinline__ int first_column(const auto& d, const Work& work) {
        return min(work.weight / 2 + thread_index_anew() / 32 * 8, d.columns() - 8);
    }
    __device__ __forceinline__ void ask_for_factors(const auto& d, const Work& work) {
        __syncwarp();  // the tile before has been read
        factors.ask_for_tokens(d.finish, work, thread_index_anew() % 32, 32);
        factors.ask_for_columns(d, work.group, first_column(d, work), thread_index_anew() % 32);
    }
};

// Of one warp, whose sums are whole and which has asked for its factors: h of column lane / 4 of its eight and tokens as accumulators
// have them, two of each eight. Zeros beyond the last column.
template <class Tile>
__device__ __forceinline__ void activate(const auto& d, StagedGates<Tile>& staged, const Work& work, float (&sums)[Tile::SUMS],
                                         float (&h)[Tile::SUMS / 2]) {
    const int thread = thread_index_anew(), lane = thread % 32, first = work.weight / 2 + thread / 32 * 8;
    wait_for_copies();
    __syncwarp();
    float factors[2], biases[2];
#pragma unroll
    for (int half = 0; half < 2; half++) staged.factors.of_column(d, lane / 4, half, factors[half], biases[half]);
    if (d.finish.a_scale != nullptr) multiply_tokens(sums, staged.factors.a_scales, lane);
#pragma unroll
    for (int j = 0; j < Tile::SUMS; j++) sums[j] = __fmul_rn(sums[j], factors[j / 2 % 2]);
    if (d.finish.bias != nullptr)
#pragma unroll
        for (int j = 0; j < Tile::SUMS; j++) sums[j] = __fadd_rn(sums[j], biases[j / 2 % 2]);
    auto gate = [&](int k) -> float& { return sums[k / 2 * 4 + k % 2]; };
    auto up = [&](int k) -> float& { return sums[k / 2 * 4 + k % 2 + 2]; };
    if (d.limited)
#pragma unroll
        for (int k = 0; k < Tile::SUMS / 2; k++) d.activation.limit_both(gate(k), up(k));
#pragma unroll
    for (int k = 0; k < Tile::SUMS / 2; k++) h[k] = d.activation.of_limited(gate(k), up(k));
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
