// The tile of GEMMs with e4m3 tokens and packed 4-bit weights whose sums are never promoted, and its ring of stages in shared memory. There are no
// partial sums, so a lane has registers for up to 160 sums: the tile is up to twice as wide as FourBitTile (tile.cuh), and a CTA reads a third less from
// L2. A wgmma has 64 weight rows as its rows, dequantized to registers, and all tokens as its columns. Included by unpromoted.cu.
//
// A warpgroup has PARTS weight parts of 64 weight rows. Part p of warpgroup w is number p * WARPGROUPS + w of the tile:
//
//     PARTS = 1    256 or 192 tokens x 128 weight rows        PARTS = 2    160 or 64 tokens x 256 weight rows
//
//                   tokens                                                  tokens
//                 +----------------+                                      +----------+
//     warpgroup 0 | part 0         |                          warpgroup 0 | part 0   |
//     warpgroup 1 | part 0         |                          warpgroup 1 | part 0   |
//                 +----------------+                          warpgroup 0 | part 1   |
//                                                             warpgroup 1 | part 1   |
//                                                                         +----------+
//
// A stage holds 128 columns of K:
//
//     tokens      TOKENS x 128 bytes of A, with the 128-byte swizzle
//     weights     for each weight part: two packed chunks, by one copy; only one where K ends after it
//
//     full[stage]     the producer thread arrives and expects its bytes; each thread that gathers rows arrives by its copies
//     empty[stage]    each math warp arrives when its wgmmas on the stage are complete
#pragma once

#include <cstdint>

#include "common/mbarrier.cuh"
#include "common/tensor_copy.cuh"
#include "gemm/hopper_w4/operands.cuh"
#include "gemm/hopper_w4/weights/packed.cuh"

namespace zoo {

template <WeightFormat FORMAT_, int TOKENS_, int PARTS_, int STAGES_, int GATHERING_THREADS_>
struct UnpromotedTile : StageBarriers<UnpromotedTile<FORMAT_, TOKENS_, PARTS_, STAGES_, GATHERING_THREADS_>, STAGES_> {
    static constexpr WeightFormat FORMAT = FORMAT_;
    static constexpr int TOKENS = TOKENS_, PARTS = PARTS_, STAGES = STAGES_, WARPGROUPS = 2;
    static constexpr bool GATHERS = GATHERING_THREADS_ > 0, SCALED = false, STORED = false;
    static constexpr int WEIGHT_PARTS = WARPGROUPS * PARTS, WEIGHTS = WEIGHT_PARTS * CHUNK_ROWS, SUMS = TOKENS / 2;
    static constexpr int CHUNKS = 2, CHUNKS_PER_LINE = 2, LINES = CHUNKS / CHUNKS_PER_LINE;  // a line: 128 bytes of a token
    static constexpr int CHUNK_BYTES = CODE_BYTES + CHUNK_ROWS * CHUNK / (FORMAT == WeightFormat::nvfp4 ? 16 : 32);

    static constexpr int MATH_WARPS = WARPGROUPS * 4, MATH_THREADS = MATH_WARPS * 32;
    // In gather cubins, all producer warps after the first one gather, so produce() omits a comparison.
    static constexpr bool REALLOCATES_REGISTERS = true, ALL_PRODUCERS_COPY = GATHERS;
    static constexpr int GATHERING_THREADS = GATHERING_THREADS_, COPYING_THREADS = GATHERING_THREADS;
    static constexpr int THREADS = MATH_THREADS + 128;
    // With 160 sums a lane, the schedule is spilled to shared memory during the loop over K.
    static constexpr bool SPILLS_TO_SHARED = PARTS * SUMS > 128;
    static constexpr int LOADER_REGISTERS = 72, MATH_REGISTERS = 216;
    static constexpr uint32_t FULL_ARRIVALS = 1 + GATHERING_THREADS, EMPTY_ARRIVALS = MATH_WARPS;

    alignas(1024) uint8_t tokens[STAGES][LINES][TOKENS * 128];
    alignas(128) uint8_t weights[STAGES][WEIGHT_PARTS][CHUNKS * CHUNK_BYTES];
    uint2 magnitudes[128];
    Barrier full[STAGES], empty[STAGES];

    // Called by all threads, which then synchronise.
    __device__ __forceinline__ void initialise() {
        if (threadIdx.x == 0) this->initialise_barriers(FULL_ARRIVALS, EMPTY_ARRIVALS);
        if (threadIdx.x < 128) magnitudes[threadIdx.x] = magnitudes_of<FORMAT>(threadIdx.x);
    }

    __device__ __forceinline__ void wait_until_full(Ring<STAGES> ring) {
        StageBarriers<UnpromotedTile, STAGES>::wait_until_full(ring);
        if constexpr (GATHERS) let_copies_see_shared_memory();
    }
};

}  // namespace zoo
