// From the sums of a cluster's CTAs, each over its share of K, to D, where tokens are columns: everyone sends its sums out of
// its registers to whoever stores that part of the tile, and nobody meets anybody.
//
// A part is 16 weights (a warp's) by 8 tokens (four registers a lane): part (warp, eight tokens) is stored by CTA
// (eight tokens * warps + warp) % SPLITS, which takes it from all CTAs into shared memory of its own:
//
//     received[place of the part][CTA it came from][lane]     four floats: two weights (8 apart) of two tokens
//     arrived                                                 counts the bytes of all parts that this CTA stores
//
// It adds them up in the order of the shares of K, so that the same call always gives the same bits.
#pragma once

#include <cstdint>

#include "common/cluster.cuh"
#include "common/mbarrier.cuh"
#include "common/wgmma.cuh"
#include "gemm/load/operands.cuh"
#include "gemm/epilogue/store_reduced.cuh"

namespace zoo {

// Of a tile of so many sums: what the table has as well.
constexpr int pushed_bytes(int sums, int splits) { return (sums / 128 + splits - 1) / splits * splits * 512 + 8; }

template <class Tile, int SPLITS>
struct PushedSums {
    static constexpr int PART_TOKENS = 8, PART_WEIGHTS = 16, PART_BYTES = 32 * 16;
    static constexpr int EIGHTS = Tile::TOKENS / PART_TOKENS, PARTS = EIGHTS * Tile::MATH_WARPS;
    static constexpr int PLACES = (PARTS + SPLITS - 1) / SPLITS;  // of the parts that a CTA stores
    static_assert(Tile::SWAPPED && Tile::WAVES == 1 && SPLITS > 1);

    static_assert(PLACES * SPLITS * PART_BYTES + 8 == pushed_bytes(Tile::TOKENS * Tile::WEIGHTS, SPLITS));

    // A part is turned over where it arrived, a row a token: rows are 20 floats apart, so that no two lanes meet in a bank.
    static constexpr int PITCH = PART_WEIGHTS + 4;
    static_assert(PART_TOKENS * PITCH * 4 <= SPLITS * PART_BYTES);

    float4 received[PLACES][SPLITS][32];
    Barrier arrived;

    // A cluster has SHARERS tiles, each of SPLITS CTAs, and those of one share of K lie together.
    static __device__ __forceinline__ int split_of_this_cta() { return cluster_rank() / Tile::SHARERS; }
    static __device__ __forceinline__ int places(int rank) { return (PARTS - rank + SPLITS - 1) / SPLITS; }

    // By one thread. `others`: arrivals of what is waited for together with the sums.
    __device__ __forceinline__ void initialise(uint32_t others = 0) {
        zoo::initialise(&arrived, 1 + others);
        arrive_expecting_bytes(&arrived, places(split_of_this_cta()) * SPLITS * PART_BYTES);
    }

    // By the multiplying warps, when all CTAs of the cluster have initialised.
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

    // By so many warps of the CTA. -0 of all shares becomes +0, for the sum begins with it.
    template <int WARPS, StoresEights Target>
    __device__ __forceinline__ void add_up_and_store(const Target& d, const Work& work) {
        const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, rank = split_of_this_cta();
        wait(&arrived, 0);
        for (int place = warp; place < places(rank); place += WARPS) {
            const int part = place * SPLITS + rank;
            float sum[4] = {};
#pragma unroll
            for (int split = 0; split < SPLITS; split++) {
                const float4 four = received[place][split][lane];
                sum[0] += four.x, sum[1] += four.y, sum[2] += four.z, sum[3] += four.w;
            }
            float* rows = reinterpret_cast<float*>(received[place]);
            __syncwarp();  // all have read
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
