// Where a cluster's CTAs share K: sums of a tile on their way to whoever stores them (gemm/epilogue/pushed_sums.cuh), and what they are finished
// with, which has come by then.
#pragma once

#include <type_traits>

#include "gemm/epilogue/pushed_sums.cuh"
#include "gemm/four_bit/finish.cuh"
#include "gemm/four_bit/nothing.cuh"

namespace zoo {

template <class Tile, int SPLITS>
struct FinishedByCluster : PushedSums<Tile, SPLITS> {
    Factors<Tile::TOKENS, Tile::WEIGHTS> factors;

    // By the multiplying threads, before they do.
    __device__ __forceinline__ void ask_for_factors(const auto& d, const Work& work, int thread) {
        factors.ask_for_tokens(d, work, thread, Tile::MATH_THREADS);
        factors.ask_for_weights(d, work.weight, thread);
    }

    // By all threads of the CTA, before any sums are sent: behind that it would wait for them.
    __device__ __forceinline__ void have_factors() const {
        wait_for_copies();
        __syncthreads();
    }

    __device__ __forceinline__ void add_up_and_store(const auto& d, const Work& work) {
        PushedSums<Tile, SPLITS>::template add_up_and_store<Tile::THREADS / 32>(factors.in(d, work, work.weight), work);
    }
};

template <class Tile, int SPLITS>
using PushedByCluster = std::conditional_t<(SPLITS > 1), FinishedByCluster<Tile, (SPLITS > 1 ? SPLITS : 2)>, Nothing>;
template <class Tile, int SPLITS>
using StagedByWarps = std::conditional_t<SPLITS == 1, StagedTokens<Tile>[Tile::MATH_WARPS], Nothing>;

}  // namespace zoo
