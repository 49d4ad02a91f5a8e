// The tile of an fp8b128 GEMM and the ring of stages that feeds it: what the loading warps and the multiplying warps share.
//
// A stage holds one block of K, 128 bytes of every row, which is one line of the 128-byte swizzle:
//
//     tokens          TOKENS  x 128 bytes of A           token_scales    one f32 a row of A
//     weights         WEIGHTS x 128 bytes of B           weight_scales   one f32 for 128 rows of B, or for each
//
//     full[stage]     the copying thread announces the bytes of the tensor copies, and every scale warp arrives when it has
//                     stored its scales
//     empty[stage]    every multiplying warp arrives when it has read what it will
//
// Tokens are the 64 rows of a wgmma and weights its columns, or, SWAPPED, the other way round: then 8 tokens cost 8.
#pragma once

#include <cstdint>

#include "common/mbarrier.cuh"
#include "common/wgmma.cuh"

namespace zoo {

constexpr int SCALE_BLOCK = 128;

template <int TOKENS_, int WEIGHTS_, int STAGES_, int WARPGROUPS_, bool SWAPPED_, bool OVERLAPPED_,
          int WEIGHTS_A_SCALE_ = SCALE_BLOCK>
struct Fp8b128Tile {
    static constexpr int TOKENS = TOKENS_, WEIGHTS = WEIGHTS_, STAGES = STAGES_, WARPGROUPS = WARPGROUPS_;
    static constexpr bool SWAPPED = SWAPPED_, OVERLAPPED = OVERLAPPED_;
    static constexpr int WEIGHTS_A_SCALE = WEIGHTS_A_SCALE_;  // how many rows of B share one

    static constexpr int ROWS = SWAPPED ? WEIGHTS : TOKENS, COLUMNS = SWAPPED ? TOKENS : WEIGHTS;  // of the wgmmas
    static constexpr int WAVES = ROWS / (WARPGROUPS * WGMMA_ROWS);  // a warpgroup takes so many 64 rows, one by one
    static constexpr int SUMS = COLUMNS / 2;                        // registers of 64 x COLUMNS
    static constexpr int WEIGHT_SCALES = (WEIGHTS + WEIGHTS_A_SCALE - 1) / WEIGHTS_A_SCALE;

    // A multiprocessor's registers are four banks, each serving every fourth warp. The loading warps' own are hardly used:
    // where multiplying takes more than an even share, they give theirs away: 56 + 2 * 224 = 504, 56 + 3 * 152 = 512 a lane.
    static constexpr int SETS = WAVES + (OVERLAPPED ? 2 : 1);  // of sums: whole ones for each wave, partial ones
    static constexpr bool HUNGRY = SETS * SUMS > 128 && WARPGROUPS > 1 || WARPGROUPS > 2;
    static constexpr int LOADER_REGISTERS = 56, MATH_REGISTERS = WARPGROUPS == 3 ? 152 : 224;
    static_assert(!OVERLAPPED || WAVES == 1);

    static constexpr int MATH_WARPS = WARPGROUPS * 4, MATH_THREADS = MATH_WARPS * 32;
    static constexpr int SCALE_THREADS = TOKENS >= 96 ? 96 : (TOKENS + 31) / 32 * 32, THREADS = MATH_THREADS + 32 + SCALE_THREADS;
    static constexpr uint32_t STAGE_BYTES = (TOKENS + WEIGHTS) * SCALE_BLOCK;
    static constexpr uint32_t FULL_ARRIVALS = 1 + SCALE_THREADS / 32, EMPTY_ARRIVALS = MATH_WARPS;

    // One after the other, and up to where the next thing with swizzled rows may begin: the table has the same sum.
    static constexpr int ALL_STAGES_BYTES =
        (STAGES * ((TOKENS + WEIGHTS) * SCALE_BLOCK + (TOKENS + WEIGHT_SCALES) * 4 + 16) + 1023) / 1024 * 1024;
    static_assert(ROWS == WAVES * WARPGROUPS * WGMMA_ROWS && WAVES > 0, "every warpgroup has whole wgmmas");
    static_assert(WEIGHTS_A_SCALE == SCALE_BLOCK || WEIGHTS_A_SCALE == 1 && !SWAPPED);
    static_assert(WEIGHTS % WEIGHTS_A_SCALE == 0 || SCALE_BLOCK % WEIGHTS == 0, "a scale of B begins where a tile begins");
    static_assert(SWAPPED || WEIGHTS <= WEIGHTS_A_SCALE || WEIGHTS_A_SCALE == 1,
                  "all columns of a wgmma have one scale of B, or each its own");
    static_assert(TOKENS % 8 == 0, "the swizzle repeats after 8 rows of 128 bytes");

    alignas(1024) uint8_t tokens[STAGES][TOKENS * SCALE_BLOCK];
    alignas(1024) uint8_t weights[STAGES][WEIGHTS * SCALE_BLOCK];
    float token_scales[STAGES][TOKENS];
    float weight_scales[STAGES][WEIGHT_SCALES];
    Barrier full[STAGES], empty[STAGES];

    // By one thread. Then all must synchronise.
    __device__ __forceinline__ void initialise() { initialise_ring(FULL_ARRIVALS); }

    __device__ __forceinline__ void initialise_ring(int full_arrivals) {
#pragma unroll
        for (int stage = 0; stage < STAGES; stage++) {
            zoo::initialise(&full[stage], full_arrivals);
            zoo::initialise(&empty[stage], EMPTY_ARRIVALS);
        }
    }

    __device__ __forceinline__ void wait_until_empty(Ring<STAGES> ring) { wait(&empty[ring.stage], ring.parity ^ 1); }
    __device__ __forceinline__ void wait_until_full(Ring<STAGES> ring) { wait(&full[ring.stage], ring.parity); }

    // By a whole warp that has read what it will.
    __device__ __forceinline__ void release(int stage) {
        if (threadIdx.x % 32 == 0) arrive(&empty[stage]);
    }
};

}  // namespace zoo
