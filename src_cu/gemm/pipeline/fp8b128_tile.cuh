// The tile of an fp8b128 GEMM and the ring of stages that feeds it: what the loading warps and the multiplying warps share.
//
// A stage holds one block of K, 128 bytes of every row, which is one line of the 128-byte swizzle:
//
//     tokens          TOKENS  x 128 bytes of A           token_scales    one f32 a row of A
//     weights         WEIGHTS x 128 bytes of B           weight_scales   one f32 for 128 rows of B, 64, 32, or each; or two or
//                                                        three, that of the first row and the next
//                                                        where tokens are columns, token_scales has the products of both
//
//     full[stage]     the copying thread announces the bytes of the tensor copies, and every scale warp arrives when it has
//                     stored its scales, or announces the bytes of those that are copied
//     empty[stage]    every multiplying warp arrives when it has read what it will
//
// Tokens are the 64 rows of a wgmma and weights its columns, or, SWAPPED, the other way round: then 8 tokens cost 8.
#pragma once

#include <cstdint>
#include <numeric>
#include <type_traits>

#include "common/mbarrier.cuh"
#include "common/wgmma.cuh"

namespace zoo {

constexpr int SCALE_BLOCK = 128;

template <int TOKENS_, int WEIGHTS_, int STAGES_, int WARPGROUPS_, bool SWAPPED_, bool OVERLAPPED_,
          int WEIGHTS_A_SCALE_ = SCALE_BLOCK, int COLUMN_WAVES_ = !SWAPPED_ && WEIGHTS_ == 256 ? 2 : 1>
struct Fp8b128Tile {
    static constexpr int TOKENS = TOKENS_, WEIGHTS = WEIGHTS_, STAGES = STAGES_, WARPGROUPS = WARPGROUPS_;
    static constexpr bool SWAPPED = SWAPPED_, OVERLAPPED = OVERLAPPED_;
    static constexpr int WEIGHTS_A_SCALE = WEIGHTS_A_SCALE_;  // how many rows of B share one

    static constexpr int COLUMN_WAVES = COLUMN_WAVES_;  // 64 rows take their columns in so many parts

    static constexpr int SHARERS = 1;   // CTAs of a cluster that take the same tokens: shared_tokens.cuh
    static constexpr int TOGETHER = 1;  // CTAs of a cluster that make one result: of shares of K, or parts of a block of it

    static constexpr int ROWS = SWAPPED ? WEIGHTS : TOKENS;  // of the wgmmas
    static constexpr int COLUMNS = (SWAPPED ? TOKENS : WEIGHTS) / COLUMN_WAVES;
    static constexpr int ROW_WAVES = ROWS / (WARPGROUPS * WGMMA_ROWS);  // a warpgroup takes so many 64 rows, one by one
    static constexpr int WAVES = ROW_WAVES * COLUMN_WAVES;
    static constexpr int SUMS = COLUMNS / 2;  // registers of 64 x COLUMNS
    // How many rows of the tile share an entry: where tiles begin between scales, those of one wgmma.
    static constexpr int WEIGHTS_AN_ENTRY = SWAPPED && WEIGHTS == 192 ? WGMMA_ROWS : WEIGHTS_A_SCALE;
    // Weights as columns, as many as fill the waves of CTAs: such a tile begins anywhere in a scale of B, and has the next, too, or two.
    static constexpr bool STRADDLES = !SWAPPED && WEIGHTS_A_SCALE == SCALE_BLOCK && WEIGHTS % SCALE_BLOCK != 0;
    static constexpr int SPLIT_UNIT = std::gcd(WEIGHTS, SCALE_BLOCK);  // columns that have the first are a multiple of it
    static constexpr int WEIGHT_SCALES =
        STRADDLES ? (WEIGHTS > SCALE_BLOCK + SPLIT_UNIT ? 3 : 2) : (WEIGHTS + WEIGHTS_AN_ENTRY - 1) / WEIGHTS_AN_ENTRY;

    // A multiprocessor's registers are four banks, each serving every fourth warp. The loading warps' own are hardly used:
    // where multiplying takes more than an even share, they give theirs away: 56 + 2 * 224 = 504, 56 + 3 * 152 = 512 a lane.
    static constexpr int SETS = WAVES + (OVERLAPPED ? 2 : 1);  // of sums: whole ones for each wave, partial ones
    static constexpr bool HUNGRY = (SETS * SUMS > 128 && WARPGROUPS > 1) || (SETS * SUMS > 96 && WARPGROUPS > 2);
    static constexpr int LOADER_REGISTERS = 56, MATH_REGISTERS = WARPGROUPS == 3 ? 152 : 224;
    static_assert(
        !OVERLAPPED || WAVES == 1,
        "partial sums overlap where a warpgroup has one wave: as many warpgroups as 64 rows of wgmma, or OVERLAPPED = 0");

    static constexpr int BYTES_AHEAD = 2;  // blocks of scales that are read at a time, where they are bytes

    // Of the weights that are loaded before the kernel ahead has ended: all that fit, but where one CTA fills a multiprocessor and
    // begins only when that kernel's end is near. There more would stand in the way of the first tokens.
    static constexpr int WEIGHTS_AHEAD = TOKENS < 128 ? STAGES : 3;
    static_assert(WEIGHTS_AHEAD <= STAGES);

    static constexpr int MATH_WARPS = WARPGROUPS * 4, MATH_THREADS = MATH_WARPS * 32;
    static constexpr int SCALE_THREADS = TOKENS >= 96 ? 96 : (TOKENS + 31) / 32 * 32, THREADS = MATH_THREADS + 32 + SCALE_THREADS;
    static_assert(!HUNGRY || THREADS % 128 == 0, "where three warps give registers away, who takes them waits for ever");
    static constexpr uint32_t FULL_ARRIVALS = 1 + SCALE_THREADS / 32, EMPTY_ARRIVALS = MATH_WARPS;

    static constexpr int SCALES = SWAPPED ? WEIGHT_SCALES * (TOKENS + 16) : TOKENS + WEIGHT_SCALES;  // floats a stage

    static_assert(ROWS == ROW_WAVES * WARPGROUPS * WGMMA_ROWS && WAVES > 0, "every warpgroup has whole wgmmas");
    static_assert(ROW_WAVES == 1 || COLUMN_WAVES == 1, "waves are more rows, or parts of the columns, not both");
    static_assert(WEIGHTS_A_SCALE == SCALE_BLOCK || WEIGHTS_A_SCALE == 64 || WEIGHTS_A_SCALE == (SWAPPED ? 32 : 1));
    static_assert(STRADDLES || WEIGHTS % WEIGHTS_AN_ENTRY == 0 || SCALE_BLOCK % WEIGHTS == 0,
                  "a scale of B begins where an entry begins");
    static_assert(!STRADDLES || COLUMN_WAVES == 1, "a wave of some of the columns does not know where in a scale of B it begins");
    static_assert(COLUMNS % 8 == 0 && COLUMNS <= 256, "wgmma has 8 columns or a multiple of 8, 256 at most");
    static_assert(TOKENS % 8 == 0 && WEIGHTS % 8 == 0, "the swizzle repeats after 8 rows of 128 bytes");
    static_assert(TOKENS <= 256 && WEIGHTS <= 256, "the box of a tensor copy has 256 rows at most");

    // Where tokens are columns, a thread needs the factors of two columns of every eight: they lie together, in the order of its sums.
    // Four lanes next to each other read 16 bytes each, TOKENS / 4 + 4 floats apart: no two meet in a bank.
    struct Nothing {};
    using TokenScales = std::conditional_t<SWAPPED, float[WEIGHT_SCALES][4][TOKENS / 4 + 4], float[TOKENS]>;
    using WeightScales = std::conditional_t<SWAPPED, Nothing, float[STAGES][WEIGHT_SCALES]>;

    alignas(1024) uint8_t tokens[STAGES][TOKENS * SCALE_BLOCK];
    alignas(1024) uint8_t weights[STAGES][WEIGHTS * SCALE_BLOCK];
    TokenScales token_scales[STAGES];
    [[no_unique_address]] WeightScales weight_scales;
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

    // Of a CTA's blocks, 0 being its first: what was before it in its stage, if anything, has been multiplied.
    __device__ __forceinline__ void wait_for_stage_of(int block) { wait(&empty[block % STAGES], block / STAGES % 2 ^ 1); }

    __device__ __forceinline__ float& factor(int stage, int entry, int token) {
        return token_scales[stage][entry][token % 8 / 2][token / 8 * 2 + token % 2];
    }

    // By a whole warp that has read what it will.
    __device__ __forceinline__ void release(int stage) {
        __syncwarp();
        if (threadIdx.x % 32 == 0) arrive(&empty[stage]);
    }
};

template <class Tile, int TOGETHER_>
struct TileMadeTogether : Tile {
    static constexpr int TOGETHER = TOGETHER_;
};

}  // namespace zoo
