// Where a cluster's CTAs share K: sums of a tile on their way to whoever stores them (gemm/epilogue/pushed_sums.cuh), and what they are finished
// with, which has come by then.
#pragma once

#include <type_traits>

#include "common/async_copy.cuh"
#include "gemm/epilogue/pushed_sums.cuh"
#include "gemm/four_bit/finish.cuh"
#include "gemm/four_bit/nothing.cuh"

namespace zoo {

template <class Tile, int SPLITS>
struct FinishedByCluster : PushedSums<Tile, SPLITS> {
    Factors<Tile::TOKENS, Tile::WEIGHTS> factors;

    // By one thread.
    __device__ __forceinline__ void initialise() { PushedSums<Tile, SPLITS>::initialise(Tile::MATH_THREADS); }

    // By the multiplying threads, before they do. Who waits for the sums waits for these copies.
    __device__ __forceinline__ void ask_for_factors(const auto& d, const Work& work, int thread) {
        factors.ask_for_tokens(d, work, thread, Tile::MATH_THREADS);
        factors.ask_for_weights(d, work.weight, thread);
        arrive_after_copies(&this->arrived);
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
