// The tile of a product with 4-bit weights and many tokens. One warpgroup decodes weights to e4m3 in shared memory, two multiply as a product
// of FP8 does, with both operands from there: tokens are the 64 rows of wgmma, weights its columns. A weight is decoded once for 256 tokens.
//
//     copying warp    packed | tokens
//                       |        |
//     decoders        ldmatrix's place, a table, stmatrix
//                       |        |
//     stage           weights  tokens       128 of K: WEIGHTS x 128 bytes, TOKENS x 128 bytes, both with the swizzle of 128 bytes
//                       |        |
//     multiplying     wgmma, two times 64 tokens x 128 weights a warpgroup
//
//     full[stage]             the copying thread announces its bytes; each decoding warp arrives; who copies scales, too
//     empty[stage]            each multiplying warp arrives when its wgmmas on that stage are over
//     packed_full, _empty     the same of packed weights, between the copying thread and the decoding warps
#pragma once

#include "gemm/four_bit/tile.cuh"

namespace zoo {

// What decoding and multiplying warps have to know of a tile.
struct AnnouncedTile {
    int token, weight, end_token, group;
    int more;  // there is a tile after it
};

template <Weights WEIGHTS_, int STAGES_, Promotion PROMOTION_>
struct DecodedTile {
    static constexpr Weights FORMAT = WEIGHTS_;
    static constexpr int TOKENS = 256, WEIGHTS = 128, STAGES = STAGES_, PACKED = 2, WARPGROUPS = 2;
    static constexpr bool GATHERS = false, STORED = false;
    static constexpr Promotion PROMOTION = PROMOTION_;
    static constexpr bool SCALED = PROMOTION == Promotion::of_scaled_halves;
    static constexpr int HEIGHTS = WEIGHTS / CHUNK_ROWS, CHUNKS = 2, CHUNKS_A_LINE = 2, LINES = 1;
    static constexpr int CHUNK_BYTES = CODE_BYTES + CHUNK_ROWS * CHUNK / (FORMAT == Weights::nvfp4 ? 16 : 32);
    static constexpr int WAVES = TOKENS / (WARPGROUPS * WGMMA_ROWS), SUMS = WEIGHTS / 2;  // a warpgroup's 64 tokens, one by one
    static constexpr int STAGES_A_PROMOTION = SCALED ? 1 : PROMOTED_CHUNKS / CHUNKS;
    static_assert(STAGES >= 2 * STAGES_A_PROMOTION);

    static constexpr int MATH_WARPS = WARPGROUPS * 4, MATH_THREADS = MATH_WARPS * 32, DECODING_THREADS = 128;
    static constexpr int COPYING_THREADS = SCALED ? 32 : 0;  // that arrive by their copies
    static constexpr int THREADS = MATH_THREADS + DECODING_THREADS + 128;
    static constexpr int MATH_REGISTERS = 216, DECODER_REGISTERS = 32, LOADER_REGISTERS = 48;
    static constexpr uint32_t FULL_ARRIVALS = 1 + DECODING_THREADS / 32 + COPYING_THREADS, EMPTY_ARRIVALS = MATH_WARPS;
    static constexpr int COLUMNS =
        STAGES + 1;  // tiles whose factors are there at once: as many as decoders may be ahead, and one

    alignas(1024) uint8_t tokens[STAGES][LINES][TOKENS * 128];
    alignas(1024) uint8_t weights[STAGES][WEIGHTS * 128];
    alignas(128) uint8_t packed[PACKED][HEIGHTS][CHUNKS * CHUNK_BYTES];
    uint2 table[128];
    float2 columns[COLUMNS][WEIGHTS];  // what a weight's sums are multiplied by, and what is added to them
    AnnouncedTile announced[COLUMNS];
    int slots[MATH_WARPS];  // of columns and announced, that a warp is at: no register
    Barrier full[STAGES], empty[STAGES], packed_full[PACKED], packed_empty[PACKED];
    struct Scales {
        float of[STAGES][LINES][TOKENS];
    };
    std::conditional_t<SCALED, Scales, Nothing> scales;

    // By all threads, which then synchronise.
    __device__ __forceinline__ void initialise() {
        if (threadIdx.x == 0) {
#pragma unroll
            for (int stage = 0; stage < STAGES; stage++) {
                zoo::initialise(&full[stage], FULL_ARRIVALS);
                zoo::initialise(&empty[stage], EMPTY_ARRIVALS);
            }
#pragma unroll
            for (int stage = 0; stage < PACKED; stage++) {
                zoo::initialise(&packed_full[stage], 1);
                zoo::initialise(&packed_empty[stage], DECODING_THREADS / 32);
            }
        }
        if (threadIdx.x < MATH_WARPS) slots[threadIdx.x] = 0;
        if (threadIdx.x < 128) table[threadIdx.x] = magnitudes_of<FORMAT>(threadIdx.x);
    }

    __device__ __forceinline__ void wait_until_empty(Ring<STAGES> ring) { wait(&empty[ring.stage], ring.parity ^ 1); }
    __device__ __forceinline__ void wait_until_full(Ring<STAGES> ring) { wait(&full[ring.stage], ring.parity); }

    __device__ __forceinline__ int slot_of_warp() const {
        int slot;
        asm volatile("ld.shared.u32 %0, [%1];" : "=r"(slot) : "r"(shared_address(&slots[thread_index_anew() / 32])) : "memory");
        return slot;
    }
    __device__ __forceinline__ void advance_slot_of_warp() {
        const int slot = slot_of_warp() + 1;
        __syncwarp();
        slots[thread_index_anew() / 32] = slot == COLUMNS ? 0 : slot;
        __syncwarp();
    }

    // By a whole warp.
    __device__ __forceinline__ void release(int stage) {
        __syncwarp();
        if (threadIdx.x % 32 == 0) arrive(&empty[stage]);
    }
};

}  // namespace zoo
