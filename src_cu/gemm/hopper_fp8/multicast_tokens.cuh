// Neighbouring tiles share the loads of their tokens. Each CTA loads a part of the rows, and the copy engine multicasts it to the CTAs of the
// cluster that multiply the same K blocks. Tokens are read from L2 once for SHARERS tiles. Included by dense_few.cu.
//
//     cluster of SPLITS * SHARERS CTAs, rank = split * SHARERS + tile
//     full[stage]     counts the bytes of the CTA's own weights and of all SHARERS parts of the tokens
//     empty[stage]    counts all math warps of all SHARERS CTAs, because each CTA's copies write into all of them
//
// A CTA copies nothing before all have initialised, and does not exit before all have released its stages.
#pragma once

#include <cstdint>
#include <type_traits>

#include "common/cluster.cuh"
#include "common/tensor_copy.cuh"
#include "gemm/hopper_fp8/tile.cuh"
#include "gemm/hopper_fp8/operands.cuh"
#include "gemm/schedule/tile_schedule.cuh"

namespace zoo {

template <class Tile, int SHARERS_>
struct MulticastTile : Tile {
    static constexpr int SHARERS = SHARERS_, PART = Tile::TOKENS / SHARERS;  // rows that a CTA loads, at most
    static constexpr uint32_t EMPTY_ARRIVALS = Tile::EMPTY_ARRIVALS * SHARERS;
    static_assert(Tile::TOKENS % (8 * SHARERS) == 0, "parts begin where the swizzle does");

    static __device__ __forceinline__ uint32_t first_sharer() { return cluster_rank() / SHARERS * SHARERS; }

    __device__ __forceinline__ void initialise() { this->initialise_barriers(Tile::FULL_ARRIVALS, EMPTY_ARRIVALS); }

    __device__ __forceinline__ void release(int stage) {
        __syncwarp();
        if (const uint32_t lane = threadIdx.x % 32; lane < SHARERS) arrive_in_cta(&this->empty[stage], first_sharer() + lane);
    }

    // A CTA that has multiplied `blocks` K blocks calls this before it exits: other CTAs arrive at its barriers. Each lane waits for a stage.
    __device__ __forceinline__ void wait_until_all_released(int blocks) {
        static_assert(Tile::STAGES <= 32);
        const int lane = threadIdx.x - Tile::MATH_THREADS;
        if (lane >= 0 && lane < Tile::STAGES) this->wait_for_stage_of(blocks + lane);
    }
};

// A part is a multiple of 8 rows, after which the swizzle repeats. Few tokens make small parts.
template <class Tile, class Rows>
struct MulticastOperands : Operands<Tile> {
    int rows_of_part = ceil_div(Rows(this->a_scales.rows).box(), 8 * Tile::SHARERS) * 8;

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

// Extends SplitKSchedule to CTAs that share tokens. If the tiles along D are no multiple of SHARERS, the last tiles are outside B, and copies fill
// them with zeros.
template <class Tile, int SPLITS, class Rows>
struct MulticastSchedule : SplitKSchedule<Tile, SPLITS, Rows> {
    __device__ __forceinline__ MulticastSchedule(int M, int N, int blocks) : SplitKSchedule<Tile, SPLITS, Rows>(M, N, blocks) {
        const int clusters = ceil_div(N, Tile::WEIGHTS * Tile::SHARERS);  // along D
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

// SHARERS is in the tables only where tiles share tokens.
template <class V>
constexpr int sharers() {
    if constexpr (requires { V::SHARERS; }) return V::SHARERS;
    return 1;
}
template <class Tile, int SHARERS>
using OptionalMulticastTile = std::conditional_t<(SHARERS > 1), MulticastTile<Tile, SHARERS>, Tile>;
template <class Tile, class Rows>
using UnicastOperands = std::conditional_t<std::is_same_v<Rows, EvenTiles<Tile>>, EvenTileOperands<Tile>, FewTokenOperands<Tile>>;
template <class Tile, class Rows>
using OptionalMulticastOperands =
    std::conditional_t<(Tile::SHARERS > 1), MulticastOperands<Tile, Rows>, UnicastOperands<Tile, Rows>>;
template <class Tile, int SPLITS, class Rows>
using OptionalMulticastSchedule =
    std::conditional_t<(Tile::SHARERS > 1), MulticastSchedule<Tile, SPLITS, Rows>, SplitKSchedule<Tile, SPLITS, Rows>>;

}  // namespace zoo
