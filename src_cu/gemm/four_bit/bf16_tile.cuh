// The tile of a product of bf16 tokens with 4-bit weights, and its ring of stages: as tile.cuh, but that a warpgroup may have more than one
// 64 rows of weights, since sums are complete as they leave the tensor core, and none are promoted.
//
// A stage holds CHUNKS of 64 of K:
//
//     tokens      for each chunk: TOKENS x 128 bytes of A, with the swizzle of 128 bytes
//     weights     for each 64 rows: CHUNKS packed chunks, as they lie in memory: one copy; or 128 bytes of 64 rows as they are stored,
//                 with that swizzle
//
//     full[stage]     the copying thread announces its bytes; where rows are gathered, each gathering thread arrives by its copies
//     empty[stage]    every multiplying warp arrives when its wgmmas on that stage are over
#pragma once

#include <cstdint>
#include <type_traits>

#include "common/mbarrier.cuh"
#include "common/tensor_copy.cuh"
#include "common/wgmma.cuh"
#include "gemm/four_bit/bf16_bytes.cuh"
#include "gemm/four_bit/bf16_fragments.cuh"
#include "gemm/four_bit/nothing.cuh"

namespace zoo {

// Of a variant: whether its table has the constant.
template <class V>
constexpr bool looks_up = requires { V::LOOKS_UP; };

// PARTS: of 64 rows of weights, of each warpgroup: part p of warpgroup w is number p * WARPGROUPS + w.
template <Weights WEIGHTS_, int TOKENS_, int PARTS_, int STAGES_, int CHUNKS_, bool GATHERS_, Laid LAID_ = Laid::packed,
          bool MAY_GATHER_ = LAID_ != Laid::packed, bool LOOKS_UP_ = false>
struct Bf16Tile {
    static constexpr Weights FORMAT = WEIGHTS_;
    static constexpr int TOKENS = TOKENS_, PARTS = PARTS_, STAGES = STAGES_, CHUNKS = CHUNKS_, WARPGROUPS = 2;
    static constexpr bool GATHERS = GATHERS_, SCALED = false, OF_BF16 = true;
    static constexpr Laid LAID = LAID_;
    static constexpr bool STORED = LAID != Laid::packed;
    static constexpr bool MAY_GATHER = MAY_GATHER_;  // rows through an index, if the launch says so
    static constexpr bool LOOKS_UP = LOOKS_UP_;      // pairs of stored codes
    static constexpr int HEIGHTS = WARPGROUPS * PARTS, WEIGHTS = HEIGHTS * CHUNK_ROWS, SUMS = TOKENS / 2;
    static constexpr int CHUNKS_A_LINE = 1, LINES = CHUNKS;  // of 128 bytes of a token
    static constexpr int CHUNK_BYTES =
        STORED ? CODE_BYTES : CODE_BYTES + CHUNK_ROWS * CHUNK / (FORMAT == Weights::nvfp4 ? 16 : 32);
    static constexpr int NEXT_CHUNK = STORED ? CHUNK / 2 : CHUNK_BYTES;  // from one to the next
    static_assert(!STORED || CHUNKS == 4 && PARTS == 1, "a stage has 128 bytes of each row as it is stored");
    static_assert(STAGES >= 2, "a stage is given back a chunk after its last");

    // What gemm/epilogue/pushed_sums.cuh asks of a tile.
    static constexpr bool SWAPPED = true;
    static constexpr int WAVES = 1, SHARERS = 1;

    static constexpr int MATH_WARPS = WARPGROUPS * 4, MATH_THREADS = MATH_WARPS * 32;
    static constexpr bool PARKS = SUMS * PARTS > 64;  // what the loop over K does not need waits in shared memory
    static constexpr bool HUNGRY = PARKS || LAID == Laid::stored_gates && SUMS == 64;
    static constexpr int GATHERING_THREADS = GATHERS ? 96 : MAY_GATHER ? TOKENS < 32 ? 32 : 96 : 0;
    static constexpr int THREADS = MATH_THREADS + (HUNGRY ? 128 : 32 + GATHERING_THREADS);
    static constexpr int LOADER_REGISTERS = LAID == Laid::stored_gates ? 104 : 72, MATH_REGISTERS = 252 - LOADER_REGISTERS / 2;
    static constexpr uint32_t FULL_ARRIVALS = 1 + GATHERING_THREADS, EMPTY_ARRIVALS = MATH_WARPS;

    alignas(1024) uint8_t tokens[STAGES][LINES][TOKENS * 128];
    alignas(STORED ? 1024 : 128) uint8_t weights[STAGES][HEIGHTS][CHUNKS * CHUNK_BYTES];
    std::conditional_t<(GATHERING_THREADS > 0), Nothing, int> spare;  // as in tile.cuh
    std::conditional_t<LOOKS_UP, PairsOfBytes, Nothing> pairs;
    Barrier full[STAGES], empty[STAGES];
    std::conditional_t<MAY_GATHER, bool, Nothing> gathered;

    // By all threads, which then synchronise.
    __device__ __forceinline__ void initialise(const auto& operands) {
        if constexpr (LOOKS_UP) pairs.fill(THREADS);
        if (threadIdx.x > 0) return;
        uint32_t arrivals = FULL_ARRIVALS;
        if constexpr (MAY_GATHER) {
            gathered = operands.gathers();
            if (!gathered) arrivals = 1;
        }
#pragma unroll
        for (int stage = 0; stage < STAGES; stage++) {
            zoo::initialise(&full[stage], arrivals);
            zoo::initialise(&empty[stage], EMPTY_ARRIVALS);
        }
    }

    __device__ __forceinline__ void wait_until_empty(Ring<STAGES> ring) { wait(&empty[ring.stage], ring.parity ^ 1); }
    __device__ __forceinline__ void wait_until_full(Ring<STAGES> ring) {
        bool by_threads;
        if constexpr (MAY_GATHER) by_threads = gathered;
        wait(&full[ring.stage], ring.parity);
        if constexpr (GATHERS) let_copies_see_shared_memory();
        if constexpr (MAY_GATHER)
            if (by_threads) let_copies_see_shared_memory();
    }

    // By a whole warp.
    __device__ __forceinline__ void release(int stage) {
        __syncwarp();
        if (threadIdx.x % 32 == 0) arrive(&empty[stage]);
    }
};

}  // namespace zoo
