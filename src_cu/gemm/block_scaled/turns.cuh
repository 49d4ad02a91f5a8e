// Which tile a cluster takes next: its own first; then, where there are more than run at once, those of clusters that have not been
// launched, for which the first CTA asks while tiles are computed. Every role of every CTA hears each answer.
#pragma once

#include "gemm/block_scaled/tile.cuh"

namespace zoo {

template <class Tile>
struct Turns {
    // Warps of a cluster that read an answer: three roles and those who store in each CTA, and the multiplier.
    static constexpr int READERS = (3 + STORING_WARPS) * Tile::CTAS + 1;

    Tile& tile;
    bool asks;
    Ring<ANSWERS> ring = {};

    // The next tile, or -1. By a whole warp.
    __device__ __forceinline__ int next() {
        if (!asks) return -1;
        wait(&tile.answered[ring.stage], ring.parity);
        const int block = first_block_of(&tile.answers[ring.stage]);
        let_copies_see_shared_memory();  // read, before the next answer is written
        __syncwarp();
        if (elected()) {
            if constexpr (Tile::CTAS == 1) arrive(&tile.read[ring.stage]);
            if constexpr (Tile::CTAS > 1) arrive_in_cta(&tile.read[ring.stage], 0);
        }
        ring.advance();
        return block < 0 ? -1 : block / Tile::CTAS;
    }

    // By one warp of each CTA.
    __device__ __forceinline__ void ask(bool first_cta) {
        if (!asks) return;
        do {
            if (elected()) {
                if (first_cta) wait(&tile.read[ring.stage], ring.parity ^ 1);
                arrive_expecting_bytes(&tile.answered[ring.stage], sizeof(LaunchAnswer));
                if constexpr (Tile::CTAS == 1) ask_for_a_cluster(&tile.answers[ring.stage], &tile.answered[ring.stage]);
                if constexpr (Tile::CTAS > 1)
                    if (first_cta) ask_for_a_cluster_for_all(&tile.answers[ring.stage], &tile.answered[ring.stage]);
            }
            __syncwarp();
        } while (next() >= 0);
    }
};

}  // namespace zoo
