// The tile of a product with 4-bit weights and the ring of stages that feeds it. Weights are the 64 rows of a warpgroup's wgmma,
// unpacked from shared memory into registers; tokens are its columns, 8 to 192 of them, read from shared memory, in TURNS equal parts;
// where the tile FITS, as many as its rows need (width.cuh).
//
// A stage holds CHUNKS of 64 of K:
//
//     tokens      for each 128 of K: TOKENS x 128 bytes of A, with the swizzle of 128 bytes
//     weights     for each warpgroup: CHUNKS packed chunks of its 64 rows, as they lie in memory: one copy; or 128 bytes of 64 rows as
//                 they are stored, with that swizzle
//     scales      of tokens, where they have one for 1 x 128, copied by the threads of one warp, or by those that gather
//
//     full[stage]     the copying thread announces its bytes; each thread that gathers rows or copies scales arrives by its copies
//     empty[stage]    every multiplying warp arrives when its wgmmas on that stage are over
#pragma once

#include <cstdint>
#include <type_traits>

#include "common/mbarrier.cuh"
#include "common/tensor_copy.cuh"
#include "common/wgmma.cuh"
#include "gemm/four_bit/fragments.cuh"
#include "gemm/four_bit/nothing.cuh"

namespace zoo {

constexpr int PROMOTED_CHUNKS = 4;  // of K, whose partial sums leave the tensor core together: a block

// When partial sums leave the tensor cores: after each block; after half of one, times the tokens' scales for 1 x 128; never; after each
// block or never, as a launch asks.
enum class Promotion { of_blocks, of_scaled_halves, never, if_asked };

// Each block begins anew, and is added to those before.
struct EachBlock {
    __device__ __forceinline__ EachBlock(bool = true) {}
    __device__ __forceinline__ bool begins() const { return true; }
    __device__ __forceinline__ void ends() {}
    __device__ __forceinline__ float added(float sum, float partial) const { return __fadd_rn(sum, partial); }
};

// Or the first block alone begins, and what was added up before counts nothing: no instruction more.
struct EachBlockIfAsked {
    bool asked, begin = true;
    float kept;

    __device__ __forceinline__ EachBlockIfAsked(bool asked) : asked(asked), kept(asked) {}
    __device__ __forceinline__ bool begins() const { return begin; }
    __device__ __forceinline__ void ends() { begin = asked; }
    __device__ __forceinline__ float added(float sum, float partial) const { return __fmaf_rn(sum, kept, partial); }
};

// Of a variant, in whose table FITS is only where it is 1.
template <class V>
constexpr bool fits = requires { V::FITS; };

// For each half of a block, of each token.
template <int STAGES, int TOKENS>
struct TokenScalesOfStages {
    float of[STAGES][2][TOKENS];
};

template <Weights WEIGHTS_, int TOKENS_, int TURNS_, int WARPGROUPS_, int STAGES_, int CHUNKS_, bool GATHERS_, bool FITS_,
          Promotion PROMOTION_ = Promotion::of_blocks, Laid LAID_ = Laid::packed, bool MAY_GATHER_ = LAID_ != Laid::packed>
struct FourBitTile {
    static constexpr Weights FORMAT = WEIGHTS_;
    static constexpr int TOKENS = TOKENS_, TURNS = TURNS_, WARPGROUPS = WARPGROUPS_, STAGES = STAGES_, CHUNKS = CHUNKS_;
    static constexpr bool GATHERS = GATHERS_, FITS = FITS_, OF_BF16 = false;
    static constexpr Laid LAID = LAID_;
    static constexpr bool STORED = LAID != Laid::packed;
    static constexpr bool MAY_GATHER = MAY_GATHER_;  // rows through an index, if the launch says so
    static constexpr Promotion PROMOTION = PROMOTION_;
    static constexpr bool SCALED = PROMOTION == Promotion::of_scaled_halves;
    // Has an end of its own for what most calls want, where no cluster shares K: 2 to 9 KB, for which stored weights have no room.
    static constexpr bool ENDS_PLAINLY = !STORED;
    static constexpr int HEIGHTS = WARPGROUPS, WEIGHTS = HEIGHTS * CHUNK_ROWS, SUMS = TOKENS / 2;
    static constexpr int CHUNKS_A_LINE = 2, LINES = CHUNKS / CHUNKS_A_LINE;  // of 128 bytes of a token
    static constexpr int CHUNK_BYTES = CODE_BYTES + (STORED ? 0 : CHUNK_ROWS * CHUNK / (FORMAT == Weights::nvfp4 ? 16 : 32));
    static_assert(CHUNKS == PROMOTED_CHUNKS);

    // What gemm/epilogue/pushed_sums.cuh asks of a tile.
    static constexpr bool SWAPPED = true;
    static constexpr int WAVES = 1, SHARERS = 1;

    // 192 tokens are 96 sums, 48 partial sums and 32 words of weights a lane: the loading warps give registers away, and what the loop over K
    // does not need waits in shared memory.
    static constexpr bool ALTERNATES = TOKENS <= 128;  // where blocks are promoted
    static constexpr int MATH_WARPS = WARPGROUPS * 4, MATH_THREADS = MATH_WARPS * 32;
    static constexpr bool HUNGRY = TOKENS > 64;
    static constexpr int GATHERING_THREADS = GATHERS ? 96 : MAY_GATHER ? TOKENS < 32 ? 32 : 96 : 0;
    static constexpr int SCALING_THREADS = SCALED ? 32 : 0;  // that copy tokens' scales, unless they gather tokens as well
    // Those that arrive by their copies.
    static constexpr int COPYING_THREADS = GATHERING_THREADS > 0 ? GATHERING_THREADS : SCALING_THREADS;
    static constexpr int THREADS = MATH_THREADS + (HUNGRY ? 128 : 32 + COPYING_THREADS);
    static constexpr bool PARKS = TOKENS > 128;
    static constexpr int LOADER_REGISTERS = 72;
    static constexpr int MATH_REGISTERS = SCALED ? 208 : 216;  // of tiles that fit ptxas spills a few bytes with 216
    static constexpr uint32_t FULL_ARRIVALS = 1 + COPYING_THREADS, EMPTY_ARRIVALS = MATH_WARPS;

    alignas(1024) uint8_t tokens[STAGES][LINES][TOKENS * 128];
    alignas(STORED ? 1024 : 128) uint8_t weights[STAGES][WARPGROUPS][CHUNKS * CHUNK_BYTES];
    static constexpr int ENTRIES = STORED && FORMAT == Weights::nvfp4 ? 256 : 128;  // packed weights have no negative scales
    static_assert(ENTRIES <= THREADS);
    uint2 table[ENTRIES];
    std::conditional_t<(GATHERING_THREADS > 0), Nothing, int>
        spare;  // where MayGather (gated_tile.cuh) says whether rows are gathered
    Barrier full[STAGES], empty[STAGES];
    std::conditional_t<SCALED, TokenScalesOfStages<STAGES, TOKENS>, Nothing> scales;
    std::conditional_t<MAY_GATHER, bool, Nothing> gathered;

    // By all threads, which then synchronise.
    __device__ __forceinline__ void initialise(const auto& operands) {
        if (threadIdx.x == 0) {
            uint32_t arrivals = FULL_ARRIVALS;
            if constexpr (MAY_GATHER) {
                gathered = operands.gathers();
                if (!gathered) arrivals = 1 + SCALING_THREADS;
            }
#pragma unroll
            for (int stage = 0; stage < STAGES; stage++) {
                zoo::initialise(&full[stage], arrivals);
                zoo::initialise(&empty[stage], EMPTY_ARRIVALS);
            }
        }
        if (threadIdx.x < ENTRIES) table[threadIdx.x] = magnitudes_of<FORMAT>(threadIdx.x);
    }

    __device__ __forceinline__ void wait_until_empty(Ring<STAGES> ring) { wait(&empty[ring.stage], ring.parity ^ 1); }
    // Whether threads copy tokens. By a vote, so that ptxas knows that lanes go on together.
    __device__ __forceinline__ bool are_gathered() const {
        if constexpr (MAY_GATHER) return __any_sync(0xFFFFFFFF, gathered);
        return GATHERS;
    }
    __device__ __forceinline__ void wait_until_full(Ring<STAGES> ring) { wait_until_full(ring, are_gathered()); }
    __device__ __forceinline__ void wait_until_full(Ring<STAGES> ring, bool by_threads) {
        wait(&full[ring.stage], ring.parity);
        if (by_threads) let_copies_see_shared_memory();
    }

    // By a whole warp.
    __device__ __forceinline__ void release(int stage) {
        __syncwarp();
        if (threadIdx.x % 32 == 0) arrive(&empty[stage]);
    }
};

}  // namespace zoo
