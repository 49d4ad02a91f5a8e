// Adds up the sums of a cluster's CTAs, each over its share of K, and stores D, where tokens are the columns of wgmma. Every CTA pushes its sums
// out of its registers to the CTA that stores them: no CTA waits at a cluster barrier. Included by split-K pipelines of FP8 and 4-bit weights.
//
// A part is 16 weight rows (of one warp) x 8 tokens: four registers of a lane. Part eight * MATH_WARPS + warp has the weight rows of `warp` and the
// tokens from 8 * eight on. CTA part % SPLITS stores it, and receives it from all CTAs in its own shared memory:
//
//     received[part / SPLITS][source CTA][lane]     four floats: two weight rows (8 apart) of two tokens
//     arrived                                       counts the bytes of all parts that this CTA stores
//
// It adds the parts in the sequence of the shares of K, so that a call always gives the same bits.
#pragma once

#include <cstdint>

#include "common/cluster.cuh"
#include "common/mbarrier.cuh"
#include "common/wgmma.cuh"
#include "gemm/schedule/tile_schedule.cuh"

namespace zoo {

// The size of PushedSums for a tile of `sums` sums.
constexpr int pushed_bytes(int sums, int splits) { return (sums / 128 + splits - 1) / splits * splits * 512 + 8; }

template <class Tile, int SPLITS>
struct PushedSums {
    static constexpr int PART_TOKENS = 8, PART_WEIGHTS = 16, PART_BYTES = 32 * 16;
    static constexpr int EIGHTS = Tile::TOKENS / PART_TOKENS, PARTS = EIGHTS * Tile::MATH_WARPS;
    static constexpr int OWN_PARTS = (PARTS + SPLITS - 1) / SPLITS;  // the most parts that a CTA stores
    static_assert(Tile::SWAPPED && Tile::PASSES == 1 && SPLITS > 1);

    static_assert(OWN_PARTS * SPLITS * PART_BYTES + 8 == pushed_bytes(Tile::TOKENS * Tile::WEIGHTS, SPLITS));

    // A part is transposed where it arrived, a row for each token. Rows are 20 floats apart, so that lanes have no bank conflicts.
    static constexpr int PITCH = PART_WEIGHTS + 4;
    static_assert(PART_TOKENS * PITCH * 4 <= SPLITS * PART_BYTES);

    float4 received[OWN_PARTS][SPLITS][32];
    Barrier arrived;

    // A cluster has SPLITS x SHARERS CTAs: SHARERS tiles that share tokens. CTAs of the same share of K have neighbouring ranks.
    static __device__ __forceinline__ int split_of_this_cta() { return cluster_rank() / Tile::SHARERS; }
    static __device__ __forceinline__ int own_parts(int rank) { return (PARTS - rank + SPLITS - 1) / SPLITS; }

    // One thread calls this. `others`: threads that also arrive, after they have copied factors.
    __device__ __forceinline__ void initialise(uint32_t others = 0) {
        zoo::initialise(&arrived, 1 + others);
        arrive_expecting_bytes(&arrived, own_parts(split_of_this_cta()) * SPLITS * PART_BYTES);
    }

    // All math warps call this, when all CTAs of the cluster have initialised.
    __device__ __forceinline__ void push(const float (&sums)[Tile::SUMS]) {
        const int warp = __shfl_sync(0xFFFFFFFF, threadIdx.x / 32, 0), lane = threadIdx.x % 32, rank = split_of_this_cta();
        const int tile = cluster_rank() % Tile::SHARERS;
#pragma unroll
        for (int eight = 0; eight < EIGHTS; eight++) {
            const int part = eight * Tile::MATH_WARPS + warp, owner = part % SPLITS * Tile::SHARERS + tile;
            const float* four = sums + eight * 4;
            store_in_cta(&received[part / SPLITS][rank][lane], make_float4(four[0], four[1], four[2], four[3]), &arrived, owner);
        }
    }

    // WARPS warps of the CTA call this. Target has finish_eight() and store_eight(). If all shares are -0, their sum is +0.
    template <int WARPS, class Target>
    __device__ __forceinline__ void reduce_and_store(const Target& d, const Work& work) {
        const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, rank = split_of_this_cta();
        wait(&arrived, 0);
        for (int own = warp; own < own_parts(rank); own += WARPS) {
            const int part = own * SPLITS + rank;
            float sum[4] = {};
#pragma unroll
            for (int split = 0; split < SPLITS; split++) {
                const float4 four = received[own][split][lane];
                sum[0] += four.x, sum[1] += four.y, sum[2] += four.z, sum[3] += four.w;
            }
            float* rows = reinterpret_cast<float*>(received[own]);
            __syncwarp();  // all lanes have read
#pragma unroll
            for (int i = 0; i < 4; i++) rows[(lane % 4 * 2 + i % 2) * PITCH + lane / 4 + i / 2 * 8] = sum[i];
            __syncwarp();
            const int token = lane / 2, weight = lane % 2 * 8;
            const int row = work.token + part / Tile::MATH_WARPS * PART_TOKENS + token;
            const int column = work.weight + part % Tile::MATH_WARPS * PART_WEIGHTS + weight;
            if (token >= PART_TOKENS || row >= work.end_token || column >= d.columns) continue;
            const float4* eight = reinterpret_cast<const float4*>(rows + token * PITCH + weight);
            float values[8] = {eight[0].x, eight[0].y, eight[0].z, eight[0].w, eight[1].x, eight[1].y, eight[1].z, eight[1].w};
            finish_eight(d, row, column, values);
            store_eight(d, row, column, values);
        }
    }
};

}  // namespace zoo
