// The tile of a k_grouped GEMM: the stages of hopper_fp8/tile.cuh, and the barriers between its producer warps. Included by the parts of k_grouped.
//
// Groups divide K. K blocks of 128 begin where a group begins, and so do the scale blocks of A and B. The last K block of a group is partial:
//
//     K            |    group 0    |  group 1     | no group
//     blocks       |  0  |  1  | 2 |  3  |  4  | 5|
//     copied       |=====|=====|=====                       always 128 of K, so the last copy brings other columns, too
//                                  |=====|=====|=====
//
// Other columns may be NaN in both operands, so a warp clears them in shared memory:
//
//     copying thread     writes how many columns of a block are the group's, and announces bytes on `landed` instead of `full`
//     clearing warp      waits for `landed`, clears the other columns, and arrives at `full`
//
// f32 scales come as boxes of a tensor copy. Rows of ue8m0 scales begin at multiples of 4 bytes, where no box may begin:
//
//     copying thread     writes which block it loads, and arrives at `requested`
//     e8m0 warp          waits for `requested`, loads scales; at the next block it stores them as f32, and arrives at `landed`
//
// The copy engine needs coordinates at multiples of 16 bytes, so groups begin at such columns of K.
#pragma once

#include <cstdint>
#include <type_traits>

#include "common/mbarrier.cuh"
#include "common/nothing.cuh"
#include "common/tensor_copy.cuh"
#include "gemm/hopper_fp8/tile.cuh"

namespace zoo {

// Scales are a row for each K block. Only the clearing warp arrives at `full`.
template <int TOKENS, int WEIGHTS, int STAGES, int WARPGROUPS, int HELD>
struct KGroupedTile : Fp8Tile<TOKENS, WEIGHTS, STAGES, WARPGROUPS, false, false, 1> {
    static constexpr uint32_t FULL_ARRIVALS = 1;
    static constexpr bool REALLOCATES_REGISTERS = true;
    static constexpr int LOADER_REGISTERS = WARPGROUPS == 2 ? 24 : 32, MATH_REGISTERS = WARPGROUPS == 2 ? 240 : 160;
    static constexpr int THREADS = (WARPGROUPS + 1) * 128, REGISTERS_AT_LAUNCH = 65536 / THREADS / 8 * 8;
    static_assert(LOADER_REGISTERS + WARPGROUPS * MATH_REGISTERS <= (WARPGROUPS + 1) * REGISTERS_AT_LAUNCH,
                  "a CTA that raises registers above the number at launch waits for ever");
    // A thread loads column scales in pairs. COLUMNS_HELD pairs are loaded before promotion, and stay in registers for the second pass. The
    // other pairs are loaded COLUMNS_AHEAD pairs before their use.
    static constexpr int COLUMNS_HELD = HELD, COLUMNS_AHEAD = WARPGROUPS == 2 ? 4 : 2;
    static constexpr bool ALTERNATES = WARPGROUPS == 2;
    static_assert(!ALTERNATES || TOKENS % (2 * WARPGROUPS * WGMMA_ROWS) == 0,
                  "an even number of passes: the same warpgroup begins every K block");
    static constexpr int NO_MORE = -1;

    struct alignas(16) Block {
        int kept;  // columns of the group, of 128; NO_MORE after the last block
        int token, weight, number;
    };

    // Two warpgroups start their passes alternately (mainloop.cuh). 128 sums and 64 partial sums leave 48 of 240 registers, of which column scales
    // need 28. So values that a math warp needs only after the loop over K are spilled to shared memory.
    struct Alternation {
        Barrier may_start[2];  // each warpgroup waits at its own before it starts a pass
        alignas(16) int spilled[WARPGROUPS * 4][8];
    };

    alignas(1024) Barrier requested[STAGES], landed[STAGES];
    [[no_unique_address]] std::conditional_t<ALTERNATES, Alternation, Nothing> alternation;
    Block blocks[STAGES];

    __device__ __forceinline__ void initialise(bool any_e8m0) {
        this->initialise_ring(FULL_ARRIVALS);
#pragma unroll
        for (int stage = 0; stage < STAGES; stage++) {
            zoo::initialise(&requested[stage], 1);
            zoo::initialise(&landed[stage], any_e8m0 ? 2 : 1);
        }
        if constexpr (ALTERNATES) {
            zoo::initialise(&alternation.may_start[0], WARPGROUP / 32);
            zoo::initialise(&alternation.may_start[1], WARPGROUP / 32);
        }
    }

    // Each warpgroup counts its passes, an even number for each K block. Warpgroup 0 starts its first pass without waiting.
    __device__ __forceinline__ void wait_to_start(int own, int pass) {
        wait(&alternation.may_start[own], own == 0 ? pass % 2 ^ 1 : pass % 2);
    }
    __device__ __forceinline__ void let_other_start(int own) {
        __syncwarp();
        if (threadIdx.x % 32 == 0) arrive(&alternation.may_start[own ^ 1]);
    }

    // All lanes of a warp call this. It clears all but the first `kept` of 128 bytes of every row.
    __device__ __forceinline__ void clear(int stage, int kept) {
#pragma unroll 1
        for (int row = threadIdx.x % 32; row < TOKENS + WEIGHTS; row += 32) {
            uint8_t* line =
                row < TOKENS ? this->tokens[stage] + row * SCALE_BLOCK : this->weights[stage] + (row - TOKENS) * SCALE_BLOCK;
#pragma unroll 1
            for (int first = kept / 16 * 16; first < SCALE_BLOCK; first += 16) {
                uint4* piece = reinterpret_cast<uint4*>(line + (first ^ row % 8 * 16));
                const uint4 old = *piece;
                *piece = make_uint4(first_bytes(old.x, kept - first), first_bytes(old.y, kept - first - 4),
                                    first_bytes(old.z, kept - first - 8), first_bytes(old.w, kept - first - 12));
            }
        }
        let_copies_see_shared_memory();
    }

   private:
    static __device__ __forceinline__ uint32_t first_bytes(uint32_t word, int count) {
        return count <= 0 ? 0 : count >= 4 ? word : word & (1u << 8 * count) - 1;
    }
};

}  // namespace zoo
