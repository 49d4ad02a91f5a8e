// The tile of GEMMs that dequantize 4-bit weights to e4m3 in shared memory, and its ring of stages. wgmma reads both operands from shared memory:
// tokens are its rows, weight rows its columns. A weight is dequantized once for 256 tokens. Included by dequantized.cu.
//
//     producer        packed | tokens
//                       |        |
//     dequantizers    load, look up in a table, stmatrix
//                       |        |
//     stage           weights  tokens       128 columns of K: WEIGHTS x 128 bytes, TOKENS x 128 bytes, both with the 128-byte swizzle
//                       |        |
//     math warps      wgmma, two times 64 tokens x 128 weight rows a warpgroup
//
//     full[stage]               the producer thread arrives and expects its bytes; each dequantizing warp and each thread that copies scales arrive
//     empty[stage]              each math warp arrives when its wgmmas on the stage are complete
//     dequantizing.full, empty  the same for packed weights, between the producer and the dequantizing warps
#pragma once

#include <climits>
#include <cstdint>
#include <type_traits>

#include "common/nothing.cuh"
#include "gemm/hopper_w4/weights/packed.cuh"

namespace zoo {

// The producer announces each tile to dequantizing warps and math warps.
struct AnnouncedTile {
    int token, weight, end_token, group;
    int more;  // the CTA has another tile after this one
};

// Policy: a warpgroup dequantizes the weights of its own CTA, from a ring of packed stages (by_one_warpgroup.cuh).
template <int PIECE_BYTES>
struct DequantizesInCta {
    static constexpr bool ONCE = false;
    static constexpr int THREADS = 128, PACKED = 2, STAGES_PER_TILE = 1;  // dequantizers may be ahead by a tile for each stage
    static constexpr int MATH_REGISTERS = 216, DEQUANTIZER_REGISTERS = 32, LOADER_REGISTERS = 48;

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

// The position of a warp in its walk along groups: the first of 32 groups, the number of earlier groups with rows, and their tiles of rows.
struct GroupStep {
    int first, before, tiles_before;
};
// The position of a dequantizing warp: also its group, the tile columns that run concurrently there, and the ticket of the group's first unit.
struct UnitPosition {
    GroupStep step;
    int group, width, first_ticket;
};
// A unit is 128 weight rows x 128 columns of K: its index in the workspace, its first chunk in b, and the weight parts (`heights`) and chunks that b has
// from that chunk on.
struct DequantizedUnit {
    int index, first_chunk, heights, chunks;
};
// A tile of D, the units that concurrent tiles need before its first one, and the units that they need for each stage.
struct TileAndUnits {
    AnnouncedTile tile;
    int units_before, units_a_stage;
};

// Policy: all CTAs dequantize all weights once, into a workspace (to_workspace.cuh).
template <int PIECE_BYTES>
struct DequantizesOnce {
    static constexpr bool ONCE = true;
    static constexpr int THREADS = 0, WARPS = 2, STAGES_PER_TILE = 2;  // the producer may be ahead by a tile for each two stages
    static constexpr int MATH_REGISTERS = 224, LOADER_REGISTERS = 56;

    alignas(128) uint8_t packed[WARPS][2][PIECE_BYTES];
    alignas(128) uint8_t rows[WARPS][16 * 128];
    Barrier full[WARPS][2], cleared;  // cleared: the ticket queue is ready
    GroupStep producer;               // the producer warp's position
    UnitPosition positions[WARPS];
    DequantizedUnit units[WARPS][2];  // of each warp: the current unit and the next one
    int progress;                     // how many units, in the sequence of tickets, come before the stage that the CTA needs now

    __device__ __forceinline__ void initialise() {
        zoo::initialise(&cleared, 1);
        for (int warp = 0; warp < WARPS; warp++)
            for (int piece = 0; piece < 2; piece++) zoo::initialise(&full[warp][piece], 1);
        producer = {0, 0, 0};
        for (UnitPosition& of_warp : positions) of_warp = {{0, 0, 0}, 0, 0, INT_MIN / 2};
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

template <WeightFormat FORMAT_, int STAGES_, Promotion PROMOTION_, template <int> class Dequantizing_>
struct DequantizedTile {
    static constexpr WeightFormat FORMAT = FORMAT_;
    static constexpr int TOKENS = 256, WEIGHTS = 128, STAGES = STAGES_, WARPGROUPS = 2;
    static constexpr bool GATHERS = false, STORED = false;
    static constexpr Promotion PROMOTION = PROMOTION_;
    static constexpr bool SCALED = PROMOTION == Promotion::every_128_scaled;
    static constexpr int WEIGHT_PARTS = WEIGHTS / CHUNK_ROWS, CHUNKS = 2, CHUNKS_PER_LINE = 2, LINES = 1;
    static constexpr int CHUNK_BYTES = CODE_BYTES + CHUNK_ROWS * CHUNK / (FORMAT == WeightFormat::nvfp4 ? 16 : 32);
    using Dequantizing = Dequantizing_<CHUNKS * CHUNK_BYTES>;
    // A warpgroup has PASSES times 64 tokens.
    static constexpr int PASSES = TOKENS / (WARPGROUPS * WGMMA_ROWS), SUMS = WEIGHTS / 2;
    static constexpr int STAGES_PER_PROMOTION = SCALED ? 1 : PROMOTED_CHUNKS / CHUNKS;
    static_assert(STAGES >= 2 * STAGES_PER_PROMOTION && STAGES % Dequantizing::STAGES_PER_TILE == 0);

    static constexpr int MATH_WARPS = WARPGROUPS * 4, MATH_THREADS = MATH_WARPS * 32,
                         DEQUANTIZING_THREADS = Dequantizing::THREADS;
    static constexpr int THREADS = MATH_THREADS + DEQUANTIZING_THREADS + 128;
    static constexpr int COPYING_THREADS = SCALED ? 32 : 0;  // arrive at full[] by their copies
    static constexpr uint32_t FULL_ARRIVALS = 1 + DEQUANTIZING_THREADS / 32 + COPYING_THREADS, EMPTY_ARRIVALS = MATH_WARPS;
    // Tiles whose factors are in shared memory at a time.
    static constexpr int COLUMNS = STAGES / Dequantizing::STAGES_PER_TILE + 1;

    alignas(1024) uint8_t tokens[STAGES][LINES][TOKENS * 128];
    alignas(1024) uint8_t weights[STAGES][WEIGHTS * 128];
    uint2 magnitudes[128];
    float2 columns[COLUMNS][WEIGHTS];  // factor and bias of each weight row
    AnnouncedTile announced[COLUMNS];
    int entries[MATH_WARPS];  // the index into columns and announced of each math warp, which has no register for it
    Barrier full[STAGES], empty[STAGES];
    struct Scales {
        float of[STAGES][LINES][TOKENS];
    };
    std::conditional_t<SCALED, Scales, Nothing> scales;
    Dequantizing dequantizing;

    // Called by all threads, which then synchronise.
    __device__ __forceinline__ void initialise() {
        if (threadIdx.x == 0) {
            dequantizing.initialise();
#pragma unroll
            for (int stage = 0; stage < STAGES; stage++) {
                zoo::initialise(&full[stage], FULL_ARRIVALS);
                zoo::initialise(&empty[stage], EMPTY_ARRIVALS);
            }
        }
        if (threadIdx.x < MATH_WARPS) entries[threadIdx.x] = 0;
        if (threadIdx.x < 128) magnitudes[threadIdx.x] = magnitudes_of<FORMAT>(threadIdx.x);
    }

    __device__ __forceinline__ void wait_until_empty(Ring<STAGES> ring) { wait(&empty[ring.stage], ring.parity ^ 1); }
    __device__ __forceinline__ void wait_until_full(Ring<STAGES> ring) { wait(&full[ring.stage], ring.parity); }

    __device__ __forceinline__ int entry_of_warp() const {
        int entry;
        asm volatile("ld.shared.u32 %0, [%1];"
                     : "=r"(entry)
                     : "r"(shared_address(&entries[reread_thread_index() / 32]))
                     : "memory");
        return entry;
    }
    __device__ __forceinline__ void advance_entry_of_warp() {
        const int entry = entry_of_warp() + 1;
        __syncwarp();
        entries[reread_thread_index() / 32] = entry == COLUMNS ? 0 : entry;
        __syncwarp();
    }

    // Called by a whole warp.
    __device__ __forceinline__ void release(int stage) {
        __syncwarp();
        if (threadIdx.x % 32 == 0) arrive(&empty[stage]);
    }
};

}  // namespace zoo
