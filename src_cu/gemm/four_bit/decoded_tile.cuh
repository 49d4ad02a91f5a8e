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

#include <climits>

#include "gemm/four_bit/tile.cuh"

namespace zoo {

// What decoding and multiplying warps have to know of a tile.
struct AnnouncedTile {
    int token, weight, end_token, group;
    int more;  // there is a tile after it
};

// How weights are decoded. By one CTA for itself: as it multiplies them, through a ring of packed stages.
template <int PIECE_BYTES>
struct DecodesByItself {
    static constexpr bool ONCE = false;
    static constexpr int THREADS = 128, PACKED = 2, STAGES_A_TILE = 1;  // decoders may be a tile ahead for each stage
    static constexpr int MATH_REGISTERS = 216, DECODER_REGISTERS = 32, LOADER_REGISTERS = 48;

    alignas(128) uint8_t packed[PACKED][2][PIECE_BYTES];
    Barrier full[PACKED], empty[PACKED];

    __device__ __forceinline__ void initialise() {
#pragma unroll
        for (int stage = 0; stage < PACKED; stage++) {
            zoo::initialise(&full[stage], 1);
            zoo::initialise(&empty[stage], THREADS / 32);
        }
    }
};

// Where a warp is that walks along groups: at the first of 32, and how many before it have rows, and how many tiles down.
struct StepOfGroups {
    int first, before, tiles_before;
};
// And a decoder, in which group; how many columns of tiles run at a time there; its first unit.
struct DecodersPlace {
    StepOfGroups step;
    int group, width, first_ticket;
};
// 128 weights and 128 of K: which of all, its first chunk in b, and how many tiles of 64 weights and how many chunks of K there are from there on.
struct DecodedUnit {
    int place, first_chunk, heights, chunks;
};
// A tile of D; how many units the tiles that run beside it want before, and how many for each stage.
struct DecodedWork {
    AnnouncedTile tile;
    int units_before, units_a_stage;
};

// By all CTAs, once for all tokens: decode_once.cuh.
template <int PIECE_BYTES>
struct DecodesOnce {
    static constexpr bool ONCE = true;
    static constexpr int THREADS = 0, WARPS = 2, STAGES_A_TILE = 2;  // who copies may be a tile ahead for two stages
    static constexpr int MATH_REGISTERS = 224, LOADER_REGISTERS = 56;

    alignas(128) uint8_t packed[WARPS][2][PIECE_BYTES];
    alignas(128) uint8_t rows[WARPS][16 * 128];
    Barrier full[WARPS][2], cleared;  // cleared: the claims may be read
    StepOfGroups copying;             // where the warp that copies is
    DecodersPlace decoders[WARPS];
    DecodedUnit units[WARPS][2];  // which each decodes, and which comes next
    int progress;  // a unit: of those after it, none that the CTA wants comes more than a stage of all columns later

    __device__ __forceinline__ void initialise() {
        zoo::initialise(&cleared, 1);
        for (int warp = 0; warp < WARPS; warp++)
            for (int piece = 0; piece < 2; piece++) zoo::initialise(&full[warp][piece], 1);
        copying = {0, 0, 0};
        for (DecodersPlace& of_warp : decoders) of_warp = {{0, 0, 0}, 0, 0, INT_MIN / 2};
        progress = 0;
    }
    __device__ __forceinline__ void set_progress(int unit) {
        asm volatile("st.relaxed.cta.shared::cta.s32 [%0], %1;" ::"r"(shared_address(&progress)), "r"(unit) : "memory");
    }
    __device__ __forceinline__ int get_progress() const {
        int unit;
        asm volatile("ld.relaxed.cta.shared::cta.s32 %0, [%1];" : "=r"(unit) : "r"(shared_address(&progress)) : "memory");
        return unit;
    }
};

template <Weights WEIGHTS_, int STAGES_, Promotion PROMOTION_, template <int> class Decoding_>
struct DecodedTile {
    static constexpr Weights FORMAT = WEIGHTS_;
    static constexpr int TOKENS = 256, WEIGHTS = 128, STAGES = STAGES_, WARPGROUPS = 2;
    static constexpr bool GATHERS = false, MAY_GATHER = false, STORED = false;
    static constexpr Promotion PROMOTION = PROMOTION_;
    static constexpr bool SCALED = PROMOTION == Promotion::of_scaled_halves;
    static constexpr int HEIGHTS = WEIGHTS / CHUNK_ROWS, CHUNKS = 2, CHUNKS_A_LINE = 2, LINES = 1;
    static constexpr int CHUNK_BYTES = CODE_BYTES + CHUNK_ROWS * CHUNK / (FORMAT == Weights::nvfp4 ? 16 : 32);
    using Decoding = Decoding_<CHUNKS * CHUNK_BYTES>;
    static constexpr int WAVES = TOKENS / (WARPGROUPS * WGMMA_ROWS), SUMS = WEIGHTS / 2;  // a warpgroup's 64 tokens, one by one
    static constexpr int STAGES_A_PROMOTION = SCALED ? 1 : PROMOTED_CHUNKS / CHUNKS;
    static_assert(STAGES >= 2 * STAGES_A_PROMOTION && STAGES % Decoding::STAGES_A_TILE == 0);

    static constexpr int MATH_WARPS = WARPGROUPS * 4, MATH_THREADS = MATH_WARPS * 32, DECODING_THREADS = Decoding::THREADS;
    static constexpr int THREADS = MATH_THREADS + DECODING_THREADS + 128;
    static constexpr int COPYING_THREADS = SCALED ? 32 : 0;  // that arrive by their copies
    static constexpr uint32_t FULL_ARRIVALS = 1 + DECODING_THREADS / 32 + COPYING_THREADS, EMPTY_ARRIVALS = MATH_WARPS;
    static constexpr int COLUMNS = STAGES / Decoding::STAGES_A_TILE + 1;  // tiles whose factors are there at once

    alignas(1024) uint8_t tokens[STAGES][LINES][TOKENS * 128];
    alignas(1024) uint8_t weights[STAGES][WEIGHTS * 128];
    uint2 table[128];
    float2 columns[COLUMNS][WEIGHTS];  // what a weight's sums are multiplied by, and what is added to them
    AnnouncedTile announced[COLUMNS];
    int slots[MATH_WARPS];  // of columns and announced, that a warp is at: no register
    Barrier full[STAGES], empty[STAGES];
    struct Scales {
        float of[STAGES][LINES][TOKENS];
    };
    std::conditional_t<SCALED, Scales, Nothing> scales;
    Decoding decoding;

    // By all threads, which then synchronise.
    __device__ __forceinline__ void initialise() {
        if (threadIdx.x == 0) {
            decoding.initialise();
#pragma unroll
            for (int stage = 0; stage < STAGES; stage++) {
                zoo::initialise(&full[stage], FULL_ARRIVALS);
                zoo::initialise(&empty[stage], EMPTY_ARRIVALS);
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
