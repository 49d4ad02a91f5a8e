// Tiles next to each other whose CTAs take the same tokens: each asks for a part of their rows, and the copy engine hands it to all of
// a cluster's CTAs that multiply the same blocks of K. What L2 is asked for is weights, and tokens once for SHARERS tiles:
//
//     cluster of SPLITS * SHARERS CTAs, rank = split * SHARERS + tile
//     full[stage]     counts the bytes of its own weights and of all SHARERS parts of the tokens, as without sharing
//     empty[stage]    counts every multiplying warp of all SHARERS CTAs: whoever copies writes into all of them
//
// So nobody copies before all have initialised, nor ends before all have given its stages back.
#pragma once

#include <cstdint>
#include <type_traits>

#include "common/cluster.cuh"
#include "common/tensor_copy.cuh"
#include "gemm/pipeline/fp8b128_tile.cuh"
#include "gemm/load/operands.cuh"
#include "gemm/schedule/tile_order.cuh"

namespace zoo {

template <class Tile, int SHARERS_>
struct SharingTile : Tile {
    static constexpr int SHARERS = SHARERS_, PART = Tile::TOKENS / SHARERS;  // rows of the tokens that a CTA asks for at most
    static constexpr uint32_t EMPTY_ARRIVALS = Tile::EMPTY_ARRIVALS * SHARERS;
    static_assert(Tile::TOKENS % (8 * SHARERS) == 0, "parts begin where the swizzle does");

    static __device__ __forceinline__ uint32_t first_sharer() { return cluster_rank() / SHARERS * SHARERS; }

    __device__ __forceinline__ void initialise() {
#pragma unroll
        for (int stage = 0; stage < Tile::STAGES; stage++) {
            zoo::initialise(&this->full[stage], Tile::FULL_ARRIVALS);
            zoo::initialise(&this->empty[stage], EMPTY_ARRIVALS);
        }
    }

    __device__ __forceinline__ void release(int stage) {
        __syncwarp();
        if (const uint32_t lane = threadIdx.x % 32; lane < SHARERS) arrive_in_cta(&this->empty[stage], first_sharer() + lane);
    }

    // The last thing that a CTA does, having multiplied so many blocks: others give stages back to it. A lane for each stage.
    __device__ __forceinline__ void stay_until_given_back(int blocks) {
        static_assert(Tile::STAGES <= 32);
        const int lane = threadIdx.x - Tile::MATH_THREADS;
        if (lane >= 0 && lane < Tile::STAGES) this->wait_for_stage_of(blocks + lane);
    }
};

// A box has a part of the tokens' rows, in eights, which the swizzle repeats after. Where tokens are few, parts are small.
template <class Tile, class Rows>
struct SharedOperands : Operands<Tile> {
    int rows_of_part = tiles_of(Rows(this->a_scales.rows).box(), 8 * Tile::SHARERS) * 8;

    __device__ __forceinline__ int token_rows() const { return Tile::SHARERS * part(); }
    __device__ __forceinline__ int part() const { return rows_of_part; }

    __device__ __forceinline__ void load_weights(Tile& tile, int stage, const Work& work, int block) const {
        Operands<Tile>::load_weights(tile, stage, work, block, token_rows());
    }

    __device__ __forceinline__ void load_tokens(Tile& tile, int stage, const Work& work, int block) const {
        const uint32_t first = Tile::first_sharer(), row = (cluster_rank() - first) * part();
        load_box_to_all(tile.tokens[stage] + row * SCALE_BLOCK, this->a, block * SCALE_BLOCK, work.token + row, &tile.full[stage],
                        ((1 << Tile::SHARERS) - 1) << first);
    }

    __device__ __forceinline__ void prefetch_tokens(const Work& work, int block, int thread, int threads) const {
        if (thread > 0 && thread < Tile::SHARERS) prefetch_box(this->a, block * SCALE_BLOCK, work.token + thread * part());
        Operands<Tile>::prefetch_tokens(work, block, thread, threads);
    }
};

// Like SplitOrder. Where the tiles along a row are no multiple of SHARERS, the last ones have no weights: zeros come for them.
template <class Tile, int SPLITS, class Rows>
struct SharedOrder : SplitOrder<Tile, SPLITS, Rows> {
    __device__ __forceinline__ SharedOrder(int M, int N, int blocks) : SplitOrder<Tile, SPLITS, Rows>(M, N, blocks) {
        const int clusters = tiles_of(N, Tile::WEIGHTS * Tile::SHARERS);  // along a row
        const int index = blockIdx.x / (SPLITS * Tile::SHARERS), rank = cluster_rank(), split = rank / Tile::SHARERS;
        this->columns = clusters * Tile::SHARERS;
        const Rows cut(M);
        this->work = {cut.first(index / clusters),
                      (index % clusters * Tile::SHARERS + rank % Tile::SHARERS) * Tile::WEIGHTS,
                      cut.end(index / clusters),
                      0,
                      int(int64_t(blocks) * split / SPLITS),
                      int(int64_t(blocks) * (split + 1) / SPLITS)};
    }
};

// Few variants say that so many tiles share their tokens.
template <class V>
constexpr int sharers() {
    if constexpr (requires { V::SHARERS; }) return V::SHARERS;
    return 1;
}
template <class Tile, int SHARERS>
using MayShareTile = std::conditional_t<(SHARERS > 1), SharingTile<Tile, SHARERS>, Tile>;
template <class Tile, class Rows>
using OwnOperands = std::conditional_t<std::is_same_v<Rows, EvenTiles<Tile>>, EvenOperands<Tile>, FewOperands<Tile>>;
template <class Tile, class Rows>
using MayShareOperands = std::conditional_t<(Tile::SHARERS > 1), SharedOperands<Tile, Rows>, OwnOperands<Tile, Rows>>;
template <class Tile, int SPLITS, class Rows>
using MayShareOrder = std::conditional_t<(Tile::SHARERS > 1), SharedOrder<Tile, SPLITS, Rows>, SplitOrder<Tile, SPLITS, Rows>>;

}  // namespace zoo
