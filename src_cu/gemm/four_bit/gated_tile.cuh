// A tile of packed gates and ups whose tokens come by boxes, or through an index by threads of their own, as the launch says; where tokens
// have scales for 1 x 128, and where weights are stored, the tile itself does that (tile.cuh):
//
//     full[stage]     the copying thread announces its bytes; where rows are gathered, each gathering thread arrives by its copies
#pragma once

#include <cstdint>

#include "gemm/four_bit/bf16_tile.cuh"
#include "gemm/four_bit/tile.cuh"

namespace zoo {

// Of a Tile that gathers nothing.
template <class Tile, int GATHERING_THREADS_>
struct MayGather : Tile {
    static_assert(!Tile::GATHERS && !Tile::MAY_GATHER && Tile::FULL_ARRIVALS == 1);
    static constexpr bool MAY_GATHER = true;
    static constexpr int GATHERING_THREADS = GATHERING_THREADS_;
    static constexpr int THREADS = Tile::MATH_THREADS + (Tile::HUNGRY ? 128 : 32 + GATHERING_THREADS);
    static_assert(Tile::MATH_THREADS + 32 + GATHERING_THREADS <= THREADS);
    static constexpr int LOADER_REGISTERS = 88, MATH_REGISTERS = 208;  // with 72 and 216 a number that all warps keep is spilled

    // Whether rows are gathered: in a word that the tile has and uses for nothing, for one behind it would take 1 KB.
    __device__ __forceinline__ int& gathered() { return this->spare; }

    // By all threads, which then synchronise.
    __device__ __forceinline__ void initialise(const auto& operands) {
        if (threadIdx.x == 0) {
            gathered() = operands.gathers();
            const uint32_t arrivals = gathered() ? 1 + GATHERING_THREADS : 1;
#pragma unroll
            for (int stage = 0; stage < Tile::STAGES; stage++) {
                zoo::initialise(&this->full[stage], arrivals);
                zoo::initialise(&this->empty[stage], Tile::EMPTY_ARRIVALS);
            }
        }
        if constexpr (!Tile::OF_BF16)
            if (threadIdx.x < 128) this->table[threadIdx.x] = magnitudes_of<Tile::FORMAT>(threadIdx.x);
    }

    __device__ __forceinline__ void wait_until_full(Ring<Tile::STAGES> ring) {
        // By a vote ptxas knows that lanes go on together, in FP8's loops; in bf16's it does not, either way.
        const bool by_threads = Tile::OF_BF16 ? gathered() : __any_sync(0xFFFFFFFF, gathered());
        wait(&this->full[ring.stage], ring.parity);
        if (by_threads) let_copies_see_shared_memory();
    }
};

}  // namespace zoo
