// From the sums of a cluster's CTAs, each over its share of K, to D.
//
// Every CTA lays its sums down in its own shared memory, a row for each token; then each adds up its share of the tile from
// all of them, in the order of their shares of K, so that the same call always gives the same bits. Nothing goes through
// global memory.
//
//     rows are WEIGHTS + 4 floats apart: lanes 8 apart, which hold the next two tokens, are 2 (WEIGHTS + 4) % 32 = 8 banks
//     apart, and 8 lanes hold 8 neighbouring weights; where tokens are the rows of the sums, WEIGHTS + 8: 4 lanes hold 8
//     neighbouring weights, the next 4 those of the next token
#pragma once

#include <cstdint>

#include "common/cluster.cuh"
#include "common/half.cuh"
#include "common/variant.cuh"
#include "common/wgmma.cuh"
#include "gemm/load/operands.cuh"
#include "gemm/epilogue/store_rows.cuh"
#include "gemm/epilogue/sum.cuh"

namespace zoo {

template <class Tile>
struct LaidSums {
    static constexpr int PITCH = Tile::WEIGHTS + (Tile::SWAPPED ? 4 : 8);
    static_assert(Tile::WEIGHTS % 64 == 0);
    alignas(16) float rows[Tile::TOKENS][PITCH];

    // By the multiplying warps.
    __device__ __forceinline__ void lay(const float (&sums)[Tile::WAVES][Tile::SUMS]) {
        const int first = threadIdx.x / WARPGROUP * (Tile::WAVES * WGMMA_ROWS);
#pragma unroll
        for (int wave = 0; wave < Tile::WAVES; wave++)
#pragma unroll
            for (int j = 0; j < Tile::SUMS; j++) {
                const int row = first + wave * WGMMA_ROWS + accumulator_row(j), column = accumulator_column(j);
                (Tile::SWAPPED ? rows[column][row] : rows[row][column]) = sums[wave][j];
            }
    }

    // Eight neighbouring weights of a token, added up over the CTAs of a cluster. One that is alone adds nothing: -0 stays -0.
    // Where PARTS of them next to each other have different weights, those of `part`.
    template <int SPLITS, int PARTS = 1>
    __device__ __forceinline__ void add_up(int token, int weight, float (&sum)[8], int part = 0) const {
#pragma unroll
        for (int i = 0; i < 8; i++) sum[i] = 0;
#pragma unroll
        for (int source = 0; source < SPLITS; source++)
#pragma unroll
            for (int half = 0; half < 8; half += 4) {
                const float* place = &rows[token][weight + half];
                const float4 four =
                    SPLITS * PARTS > 1 ? load_in_cta(place, source * PARTS + part) : *reinterpret_cast<const float4*>(place);
                const float values[4] = {four.x, four.y, four.z, four.w};
#pragma unroll
                for (int i = 0; i < 4; i++) sum[half + i] = SPLITS > 1 ? sum[half + i] + values[i] : values[i];
            }
    }
};

template <class D>
__device__ __forceinline__ void store_eight(const Matrix<D>& d, int row, int column, const float (&values)[8]) {
    *reinterpret_cast<uint4*>(d.at(row, column)) =
        make_uint4(encode_two(d, values[0], values[1]), encode_two(d, values[2], values[3]), encode_two(d, values[4], values[5]),
                   encode_two(d, values[6], values[7]));
}

__device__ __forceinline__ void store_eight(const Matrix<f32>& d, int row, int column, const float (&values)[8]) {
    float4* place = reinterpret_cast<float4*>(d.at(row, column));
    place[0] = make_float4(values[0], values[1], values[2], values[3]);
    place[1] = make_float4(values[4], values[5], values[6], values[7]);
}

// What eight neighbouring sums of a row go to.
template <class Target>
concept StoresEights = requires(const Target& target, float (&sums)[8]) {
    finish_eight(target, 0, 0, sums);
    store_eight(target, 0, 0, sums);
};

// By the first THREADS threads of all CTAs, each eight weights of a token at a time.
template <int SPLITS, int THREADS, class Tile, StoresEights Target>
__device__ __forceinline__ void add_up_and_store(const LaidSums<Tile>& laid, const Target& d, const Work& work) {
    constexpr int EIGHTS = Tile::WEIGHTS / 8, ALL = Tile::TOKENS * EIGHTS;
    const int split = SPLITS > 1 ? cluster_rank() : 0;
    for (int i = split * THREADS + threadIdx.x; i < ALL; i += SPLITS * THREADS) {
        const int r = i / EIGHTS, c = i % EIGHTS * 8;
        if (work.token + r >= work.end_token || work.weight + c >= d.columns) continue;
        float sum[8];
        laid.template add_up<SPLITS>(r, c, sum);
        finish_eight(d, work.token + r, work.weight + c, sum);
        store_eight(d, work.token + r, work.weight + c, sum);
    }
}

// What sums that were laid down go to.
template <class Target, class Tile>
concept StoresLaidSumsOf = requires(const Target& target, const LaidSums<Tile>& laid, const Work& work) {
    add_up_and_store<Tile::TOGETHER, Tile::THREADS>(laid, target, work);
};

}  // namespace zoo
