// Adds up the sums of a cluster's CTAs, each over its share of K, and stores D. Included by the FP8 pipelines of few tokens.
//
// Every CTA writes its sums to its own shared memory, a row for each token. Then each CTA adds up a part of the tile, reading the sums of all
// CTAs in the sequence of their shares of K. So a call always gives the same bits. No sum passes through global memory.
//
//     Rows are WEIGHTS + 4 floats apart where tokens are the columns of wgmma. Then lanes 8 apart hold the next two tokens, 2 (WEIGHTS + 4) % 32
//     = 8 banks apart, and 8 lanes hold 8 neighbouring weights. Rows are WEIGHTS + 8 floats apart where tokens are the rows of wgmma. Then 4
//     lanes hold 8 neighbouring weights, and the next 4 lanes those of the next token.
#pragma once

#include "common/cluster.cuh"
#include "common/half.cuh"
#include "common/variant.cuh"
#include "common/wgmma.cuh"
#include "gemm/hopper_fp8/store_rows.cuh"

namespace zoo {

template <class Tile>
struct SumsInShared {
    static constexpr int PITCH = Tile::WEIGHTS + (Tile::SWAPPED ? 4 : 8);
    static_assert(Tile::WEIGHTS % 64 == 0);
    alignas(16) float rows[Tile::TOKENS][PITCH];

    // All math warps call this.
    __device__ __forceinline__ void write(const float (&sums)[Tile::PASSES][Tile::SUMS]) {
        const int first = threadIdx.x / WARPGROUP * (Tile::PASSES * WGMMA_ROWS);
#pragma unroll
        for (int pass = 0; pass < Tile::PASSES; pass++)
#pragma unroll
            for (int j = 0; j < Tile::SUMS; j++) {
                const int row = first + pass * WGMMA_ROWS + accumulator_row(j), column = accumulator_column(j);
                (Tile::SWAPPED ? rows[column][row] : rows[row][column]) = sums[pass][j];
            }
    }

    // Adds up eight neighbouring weights of a token over SPLITS CTAs. A single CTA adds nothing, so that -0 stays -0.
    // PARTS neighbouring CTAs may have different weights: `part` chooses a CTA among them.
    template <int SPLITS, int PARTS = 1>
    __device__ __forceinline__ void reduce(int token, int weight, float (&sum)[8], int part = 0) const {
#pragma unroll
        for (int i = 0; i < 8; i++) sum[i] = 0;
#pragma unroll
        for (int source = 0; source < SPLITS; source++)
#pragma unroll
            for (int half = 0; half < 8; half += 4) {
                const float* from = &rows[token][weight + half];
                const float4 four =
                    SPLITS * PARTS > 1 ? load_in_cta(from, source * PARTS + part) : *reinterpret_cast<const float4*>(from);
                const float values[4] = {four.x, four.y, four.z, four.w};
#pragma unroll
                for (int i = 0; i < 4; i++) sum[half + i] = SPLITS > 1 ? sum[half + i] + values[i] : values[i];
            }
    }
};

template <class D>
__device__ __forceinline__ void store_eight(const OutputMatrix<D>& d, int row, int column, const float (&values)[8]) {
    *reinterpret_cast<uint4*>(d.at(row, column)) =
        make_uint4(encode_two(d, values[0], values[1]), encode_two(d, values[2], values[3]), encode_two(d, values[4], values[5]),
                   encode_two(d, values[6], values[7]));
}

__device__ __forceinline__ void store_eight(const OutputMatrix<f32>& d, int row, int column, const float (&values)[8]) {
    float4* to = reinterpret_cast<float4*>(d.at(row, column));
    to[0] = make_float4(values[0], values[1], values[2], values[3]);
    to[1] = make_float4(values[4], values[5], values[6], values[7]);
}

// Stores eight neighbouring sums of a row.
template <class Target>
concept StoresEightColumns = requires(const Target& target, float (&sums)[8]) {
    finish_eight(target, 0, 0, sums);
    store_eight(target, 0, 0, sums);
};

// The first THREADS threads of all CTAs call this. Each stores eight weights of a token at a time.
template <int SPLITS, int THREADS, class Tile, StoresEightColumns Target>
__device__ __forceinline__ void reduce_and_store(const SumsInShared<Tile>& shared_sums, const Target& d, const Work& work) {
    constexpr int EIGHTS = Tile::WEIGHTS / 8, ALL = Tile::TOKENS * EIGHTS;
    const int split = SPLITS > 1 ? cluster_rank() : 0;
    for (int i = split * THREADS + threadIdx.x; i < ALL; i += SPLITS * THREADS) {
        const int r = i / EIGHTS, c = i % EIGHTS * 8;
        if (work.token + r >= work.end_token || work.weight + c >= d.columns) continue;
        float sum[8];
        shared_sums.template reduce<SPLITS>(r, c, sum);
        finish_eight(d, work.token + r, work.weight + c, sum);
        store_eight(d, work.token + r, work.weight + c, sum);
    }
}

// Stores the sums that CTAs have written to shared memory.
template <class Target, class Tile>
concept StoresSumsInShared = requires(const Target& target, const SumsInShared<Tile>& shared_sums, const Work& work) {
    reduce_and_store<Tile::CTAS_PER_RESULT, Tile::THREADS>(shared_sums, target, work);
};

}  // namespace zoo
