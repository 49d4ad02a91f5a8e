// The tile of a GEMM with e4m3 tokens and 4-bit weights, and its ring of stages in shared memory. A warpgroup's wgmma has 64 weight rows as its
// rows, dequantized to registers, and tokens as its columns, read from shared memory. A tile has 8 to 192 tokens in TOKEN_PARTS equal parts.
// A tile that NARROWS multiplies only as many tokens as its rows need (mainloop.cuh). Included by packed.cu, stored.cu
// and gated/pipeline.cuh.
//
// A stage holds a K block:
//
//     tokens      for each 128 columns of K: TOKENS x 128 bytes of A, with the 128-byte swizzle
//     weights     for each warpgroup: CHUNKS packed chunks of its 64 weight rows, by one copy; or 128 bytes of each of 64 stored weight rows, with
//                 the 128-byte swizzle
//     scales      scale128 of the tokens, if A has them
//
// Besides the ring, `magnitudes` has the table that turns scale bytes and codes into e4m3 (weights/packed.cuh).
//
//     full[stage]     the producer thread arrives and expects its bytes; each thread that gathers rows or copies scales arrives by its copies
//     empty[stage]    each math warp arrives when its wgmmas on the stage are complete
#pragma once

#include <cstdint>
#include <type_traits>

#include "common/mbarrier.cuh"
#include "common/nothing.cuh"
#include "gemm/hopper_w4/operands.cuh"
#include "gemm/hopper_w4/weights/packed.cuh"

namespace zoo {

// Tables have the constant NARROWS only where it is 1.
template <class V>
constexpr bool narrows = requires { V::NARROWS; };

// scale128 of each token, for both halves of a K block.
template <int STAGES, int TOKENS>
struct TokenScalesOfStages {
    float of[STAGES][2][TOKENS];
};

template <WeightFormat FORMAT_, int TOKENS_, int TOKEN_PARTS_, int WARPGROUPS_, int STAGES_, int CHUNKS_, int GATHERING_THREADS_,
          bool NARROWS_, Promotion PROMOTION_ = Promotion::every_256, WeightLayout LAYOUT_ = WeightLayout::packed>
struct FourBitTile : StageBarriers<FourBitTile<FORMAT_, TOKENS_, TOKEN_PARTS_, WARPGROUPS_, STAGES_, CHUNKS_, GATHERING_THREADS_,
                                               NARROWS_, PROMOTION_, LAYOUT_>,
                                   STAGES_> {
    static constexpr WeightFormat FORMAT = FORMAT_;
    static constexpr int TOKENS = TOKENS_, TOKEN_PARTS = TOKEN_PARTS_, WARPGROUPS = WARPGROUPS_, STAGES = STAGES_,
                         CHUNKS = CHUNKS_;
    static constexpr bool GATHERS = GATHERING_THREADS_ > 0, NARROWS = NARROWS_, OF_BF16 = false;
    static constexpr WeightLayout LAYOUT = LAYOUT_;
    static constexpr bool STORED = LAYOUT != WeightLayout::packed;
    static constexpr Promotion PROMOTION = PROMOTION_;
    static constexpr bool SCALED = PROMOTION == Promotion::every_128_scaled;
    // Compiles a second epilogue for calls with bf16 D and neither bias nor row_scale, except with split K. It takes 2 to 9 KB of code, which
    // the longer code of stored weights leaves no room for.
    static constexpr bool HAS_BASIC_EPILOGUE = !STORED;
    static constexpr int WEIGHT_PARTS = WARPGROUPS, WEIGHTS = WEIGHT_PARTS * CHUNK_ROWS, SUMS = TOKENS / 2;
    static constexpr int CHUNKS_PER_LINE = 2, LINES = CHUNKS / CHUNKS_PER_LINE;  // a line: 128 bytes of a token
    static constexpr int CHUNK_BYTES = CODE_BYTES + (STORED ? 0 : CHUNK_ROWS * CHUNK / (FORMAT == WeightFormat::nvfp4 ? 16 : 32));
    static_assert(CHUNKS == PROMOTED_CHUNKS);

    // Read by gemm/epilogue/pushed_sums.cuh.
    static constexpr bool SWAPPED = true;
    static constexpr int PASSES = 1, SHARERS = 1;

    // Above 64 tokens, producer warps give registers to math warps. Above 128 tokens, the schedule is spilled to shared memory during the loop over K, too:
    // with 192 tokens, a lane has 96 sums, 48 partial sums and 32 words of weights.
    static constexpr bool ALTERNATES = TOKENS <= 128;  // without scale128: each token part has a set of partial sums
    static constexpr int MATH_WARPS = WARPGROUPS * 4, MATH_THREADS = MATH_WARPS * 32;
    static constexpr bool REALLOCATES_REGISTERS = TOKENS > 64;
    static constexpr int GATHERING_THREADS = GATHERING_THREADS_;
    static constexpr int SCALING_THREADS = SCALED ? 32 : 0;  // copy scale128, unless gathering threads do
    // Threads that arrive at full[] by their copies.
    static constexpr int COPYING_THREADS = GATHERING_THREADS > 0 ? GATHERING_THREADS : SCALING_THREADS;
    static constexpr int THREADS = MATH_THREADS + (REALLOCATES_REGISTERS ? 128 : 32 + COPYING_THREADS);
    static constexpr bool SPILLS_TO_SHARED = TOKENS > 128;
    static constexpr int LOADER_REGISTERS = 72, MATH_REGISTERS = 216;
    static constexpr uint32_t FULL_ARRIVALS = 1 + COPYING_THREADS, EMPTY_ARRIVALS = MATH_WARPS;

    alignas(1024) uint8_t tokens[STAGES][LINES][TOKENS * 128];
    alignas(STORED ? 1024 : 128) uint8_t weights[STAGES][WARPGROUPS][CHUNKS * CHUNK_BYTES];
    static constexpr int ENTRIES = STORED && FORMAT == WeightFormat::nvfp4 ? 256 : 128;  // a stored nvfp4 scale may be negative
    static_assert(ENTRIES <= THREADS);
    uint2 magnitudes[ENTRIES];
    Barrier full[STAGES], empty[STAGES];
    std::conditional_t<SCALED, TokenScalesOfStages<STAGES, TOKENS>, Nothing> scales;

    // Called by all threads, which then synchronise.
    __device__ __forceinline__ void initialise() {
        if (threadIdx.x == 0) this->initialise_barriers(FULL_ARRIVALS, EMPTY_ARRIVALS);
        if (threadIdx.x < ENTRIES) magnitudes[threadIdx.x] = magnitudes_of<FORMAT>(threadIdx.x);
    }

    __device__ __forceinline__ void wait_until_full(Ring<STAGES> ring) {
        StageBarriers<FourBitTile, STAGES>::wait_until_full(ring);
        if constexpr (GATHERS) let_copies_see_shared_memory();
    }
};

}  // namespace zoo
