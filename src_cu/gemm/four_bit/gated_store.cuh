// h from registers to memory, 16 bits each: each warp its eight columns, 16 bytes a token, which stmatrix turns in a piece of shared memory of its
// own. And what a launch says of h in e4m3, under a scale for 1 x 128 or under one that is known beforehand.
#pragma once

#include <cstdint>

#include "common/half.cuh"
#include "common/warp.cuh"
#include "gemm/four_bit/gated_result.cuh"
#include "gemm/epilogue/straight_fp8b128.cuh"

namespace zoo {

// By one warp. `first`: its first column.
template <class Tile, class Half, Weights FORMAT>
__device__ __forceinline__ void store_gated_halves(const FourBitResult<FORMAT>& d, StagedGates<Tile>& staged, const Work& work,
                                                   int first, int lane, const float (&h)[Tile::SUMS / 2]) {
    constexpr int STEP = StagedGates<Tile>::ROWS, LAST = Tile::SUMS / 2 - 2;  // tokens at once
    uint8_t* mine = staged.bytes + lane * StagedGates<Tile>::ROW;
    uint8_t* place = d.at(work.token + lane, first);
    const int left = work.end_token - work.token - lane;
#pragma unroll
    for (int token = 0; token < Tile::TOKENS; token += STEP) {
        __syncwarp();  // those before have been read
        uint32_t matrices[4];
#pragma unroll
        for (int m = 0; m < 4; m++) {
            const int k = min(token / 4 + m * 2, LAST);
            matrices[m] = encode_pair<Half>(h[k], h[k + 1]);
        }
        store_matrices_transposed<4>(shared_address(mine), matrices);
        __syncwarp();
        if (token < left && token + lane < Tile::TOKENS)
            *reinterpret_cast<uint4*>(place + token * d.stride * 2) = *reinterpret_cast<const uint4*>(mine);
    }
}

template <class Tile>
__device__ __forceinline__ void store_halves_of_h(const auto& d, StagedGates<Tile>& staged, const Work& work,
                                                  const float (&h)[Tile::SUMS / 2]) {
    const int thread = thread_index_anew(), first = work.weight / 2 + thread / 32 * 8;
    if (first >= d.columns()) return;
    if (d.finish.kind == IS_BF16)
        store_gated_halves<Tile, bf16>(d.finish, staged, work, first, thread % 32, h);
    else
        store_gated_halves<Tile, f16>(d.finish, staged, work, first, thread % 32, h);
}

struct ScaleOfRow {
    float scale, multiplier;
};

// e4m3. Where each group has a place for `rows` rows, its scales lie apart, too; elsewhere `rows` and scales_group are 0.
struct GatedElements {
    float* scales;  // for 1 x 128; null where h is not quantised
    int64_t scales_group, scales_row, scales_block;
    int rows;
    StraightFp8b128 format;
    const float* known;  // what they all are, or null
    bool one_known;      // of all groups
    bool in_fragments;   // order of columns: the 4 x 4 words of each 64 bytes transposed

    __device__ __forceinline__ bool wanted() const { return scales != nullptr; }

    // What a row is multiplied by, and its scale: under one that is known, or as its largest magnitude wants.
    __device__ __forceinline__ ScaleOfRow known_of(int group) const {
        const float scale = known[one_known ? 0 : group];
        return {scale, __frcp_rn(scale)};
    }
    __device__ __forceinline__ ScaleOfRow found_from(uint32_t largest) const {
        const uint32_t scale = format.scale_of(__uint_as_float(largest));
        return {__uint_as_float(scale), format.multiplier(scale)};
    }

    // Of the 128 columns that the tile's first belongs to.
    template <class Tile>
    __device__ __forceinline__ void store_scale(const Work& work, int row, float scale) const {
        if (row < work.end_token)
            scales[work.group * scales_group + (row - work.group * rows) * scales_row +
                   work.weight / (2 * Tile::WEIGHTS) * scales_block] = scale;
    }
};

// Of tiles that never quantise.
struct OnlyHalves {
    using Left = Nothing;

    __device__ __forceinline__ void initialise() {}
};

}  // namespace zoo
