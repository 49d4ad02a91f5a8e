// Rows of h in e4m3 where a cluster's two CTAs have a tile each of the 128 columns that share scales, so that no h waits anywhere: |h| of 64
// columns are compared among a warp's lanes, then of eight warps by a thread a token, which sends the largest to the other CTA, waits for that
// one's, and makes the scale. Under a scale that is known cubins of pairs alone do all the same, and it counts nothing, which costs the others
// less than a branch; others, whose CTAs take tiles by themselves then, send nothing. Everything else is as in gated_pairs.cuh.
#pragma once

#include <cstdint>

#include "common/cluster.cuh"
#include "gemm/four_bit/gated_pairs.cuh"

namespace zoo {

// What is sent lies in two places in turn: who sends for the second time to one has received what the other CTA sent after it had read the
// first.
template <int TOKENS>
struct ExchangedMagnitudes {
    uint32_t received[2][TOKENS];
    Barrier arrived[2];

    // By one thread.
    __device__ __forceinline__ void initialise() {
#pragma unroll
        for (Barrier& one : arrived) zoo::initialise(&one, 1);
    }

    // By a thread for each token; `turn` counts exchanges.
    __device__ __forceinline__ uint32_t larger_of_both(uint32_t own, int token, uint32_t turn) {
        const uint32_t place = turn % 2;
        if (token == 0) arrive_expecting_bytes(&arrived[place], sizeof(received[place]));
        store_in_cta(&received[place][token], own, &arrived[place], cluster_rank() ^ 1);
        wait(&arrived[place], turn / 2 % 2);
        return max(own, received[place][token]);
    }
};

template <class Tile>
struct GatedPairsThatExchange : GatedPairs<Tile> {
    using Pairs = GatedPairs<Tile>;
    ExchangedMagnitudes<Tile::TOKENS> exchanged;

    // By one thread.
    __device__ __forceinline__ void initialise() { Pairs::initialise(), exchanged.initialise(); }
};

template <class Tile>
struct GatedPairsOfClusters : GatedPairsThatExchange<Tile> {
    using Pairs = GatedPairs<Tile>;

    // `shared`: whether the other CTA has a tile with the same scales. `turn` counts rows that are put together, `exchange` those of them with
    // shared scales.
    template <Weights FORMAT>
    __device__ __forceinline__ void quantise_and_store(const FourBitResult<FORMAT>& d, const GatedElements& q, const Work& work,
                                                       bool shared, uint32_t turn, uint32_t exchange,
                                                       const float (&h)[Pairs::VALUES]) {
        this->wait_until_free(turn);
        uint32_t magnitudes[Pairs::VALUES];
#pragma unroll
        for (int k = 0; k < Pairs::VALUES; k++) magnitudes[k] = __float_as_uint(fabsf(h[k]));
        const bool first = work.weight % (2 * Tile::WEIGHTS) == 0;
        this->find_multipliers(q, work, first, magnitudes, [&](uint32_t own, int token) {
            const uint32_t largest = shared ? this->exchanged.larger_of_both(own, token, exchange) : own;
            return q.known == nullptr ? q.found_from(largest) : q.known_of(work.group);
        });
        this->lay(0, work.weight / 2 + thread_index_anew() / 32 * 8 < d.columns / 2, true, 0, h);
        this->synchronise();
        this->store(d, q, work, false);
    }
};

// The same, and what a CTA does that has both tiles, one after the other (gated_pairs.cuh), in launches without clusters.
template <class Tile>
struct GatedPairsOfClustersOrInTurn : GatedPairsThatExchange<Tile> {
    using Pairs = GatedPairs<Tile>;

    template <Weights FORMAT>
    __device__ __forceinline__ void quantise_and_store(const FourBitResult<FORMAT>& d, const GatedElements& q, const Work& work,
                                                       bool second, bool shared, uint32_t turn, uint32_t exchange,
                                                       const float (&h)[Pairs::VALUES], const Pairs::Left& left) {
        const bool first = second || work.weight % (2 * Tile::WEIGHTS) == 0;
        Pairs::quantise_and_store(d, q, work, second, first, turn, h, left, [&](uint32_t own, int token) {
            return shared ? this->exchanged.larger_of_both(own, token, exchange) : own;
        });
    }
};

}  // namespace zoo
