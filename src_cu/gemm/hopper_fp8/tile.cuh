// The tile of an fp8b128 GEMM and its ring of stages in shared memory, which producer warps fill and math warps empty. Included by all kernels
// of this family.
//
// A stage holds one K block: 128 bytes of every row, a line of the 128-byte swizzle.
//
//     tokens          TOKENS  x 128 bytes of A           token_scales    one f32 a row of A
//     weights         WEIGHTS x 128 bytes of B           weight_scales   one f32 for 128, 64, 32 or 1 rows of B: WEIGHTS_PER_SCALE
//                                                        SWAPPED: token_scales has the products of both scales, weight_scales is absent
//
//     full[stage]     the copying thread announces the bytes of the tensor copies; every scale warp arrives when it has
//                     stored its scales, or announces the bytes of copied scales
//     empty[stage]    every math warp arrives when it has read the stage
//
// Tokens are the 64 rows of a wgmma and weights its columns. SWAPPED exchanges them: 8 tokens then cost 8 columns instead of 64 rows.
#pragma once

#include <cstdint>
#include <numeric>
#include <type_traits>

#include "common/mbarrier.cuh"
#include "common/nothing.cuh"
#include "common/wgmma.cuh"

namespace zoo {

// Elements of a row that share a scale: also the depth of a K block, and the rows of B that share a scale.
constexpr int SCALE_BLOCK = 128;

template <int TOKENS_, int WEIGHTS_, int STAGES_, int WARPGROUPS_, bool SWAPPED_, bool OVERLAPPED_,
          int WEIGHTS_PER_SCALE_ = SCALE_BLOCK, int COLUMN_PASSES_ = !SWAPPED_ && WEIGHTS_ == 256 ? 2 : 1>
struct Fp8Tile
    : StageBarriers<Fp8Tile<TOKENS_, WEIGHTS_, STAGES_, WARPGROUPS_, SWAPPED_, OVERLAPPED_, WEIGHTS_PER_SCALE_, COLUMN_PASSES_>,
                    STAGES_> {
    static constexpr int TOKENS = TOKENS_, WEIGHTS = WEIGHTS_, STAGES = STAGES_, WARPGROUPS = WARPGROUPS_;
    static constexpr bool SWAPPED = SWAPPED_, OVERLAPPED = OVERLAPPED_;
    static constexpr int WEIGHTS_PER_SCALE = WEIGHTS_PER_SCALE_;  // rows of B

    static constexpr int COLUMN_PASSES = COLUMN_PASSES_;  // the columns of 64 rows are cut into so many passes

    static constexpr int SHARERS = 1;          // CTAs of a cluster that multiply the same tokens: multicast_tokens.cuh
    static constexpr int CTAS_PER_RESULT = 1;  // CTAs of a cluster that split K, or the columns of a result's scale block

    static constexpr int ROWS = SWAPPED ? WEIGHTS : TOKENS;  // of the wgmmas
    static constexpr int COLUMNS = (SWAPPED ? TOKENS : WEIGHTS) / COLUMN_PASSES;
    // A warpgroup multiplies so many times 64 rows, one after the other.
    static constexpr int ROW_PASSES = ROWS / (WARPGROUPS * WGMMA_ROWS);
    static constexpr int PASSES = ROW_PASSES * COLUMN_PASSES;
    static constexpr int SUMS = COLUMNS / 2;  // registers of 64 x COLUMNS
    // Rows of the tile that share an entry of weight_scales. Tiles of 192 rows begin inside a scale block, so an entry is for one wgmma.
    static constexpr int WEIGHTS_PER_ENTRY = SWAPPED && WEIGHTS == 192 ? WGMMA_ROWS : WEIGHTS_PER_SCALE;
    // The tile begins inside a scale block of B, and has columns of the next one or two: its width fills the waves of CTAs.
    static constexpr bool STRADDLES = !SWAPPED && WEIGHTS_PER_SCALE == SCALE_BLOCK && WEIGHTS % SCALE_BLOCK != 0;
    static constexpr int SPLIT_UNIT = std::gcd(WEIGHTS, SCALE_BLOCK);  // the first scale is for a multiple of so many columns
    static constexpr int WEIGHT_SCALES =
        STRADDLES ? (WEIGHTS > SCALE_BLOCK + SPLIT_UNIT ? 3 : 2) : (WEIGHTS + WEIGHTS_PER_ENTRY - 1) / WEIGHTS_PER_ENTRY;

    // An SM's registers are four banks, each of which serves every fourth warp: 512 for each lane. If math warps need more than an even
    // share, producer warps give them registers: 56 + 2 * 224 = 504, 56 + 3 * 152 = 512.
    static constexpr int SUM_SETS = PASSES + (OVERLAPPED ? 2 : 1);  // sums of each pass, and partial sums
    static constexpr bool REALLOCATES_REGISTERS =
        (SUM_SETS * SUMS > 128 && WARPGROUPS > 1) || (SUM_SETS * SUMS > 96 && WARPGROUPS > 2);
    static constexpr int LOADER_REGISTERS = 56, MATH_REGISTERS = WARPGROUPS == 3 ? 152 : 224;
    static_assert(!OVERLAPPED || PASSES == 1,
                  "partial sums overlap where a warpgroup has one pass: set as many WARPGROUPS as 64 rows, or OVERLAPPED = 0");

    static constexpr int E8M0_AHEAD = 2;  // K blocks whose ue8m0 scales are read at a time

    // Stages of weights that are loaded before the previous kernel has ended. Large tiles load 3: their CTAs start only when that kernel
    // nearly ends, and more weights would delay the first tokens.
    static constexpr int WEIGHTS_AHEAD = TOKENS < 128 ? STAGES : 3;
    static_assert(WEIGHTS_AHEAD <= STAGES);

    static constexpr int MATH_WARPS = WARPGROUPS * 4, MATH_THREADS = MATH_WARPS * 32;
    static constexpr int SCALE_THREADS = TOKENS >= 96 ? 96 : (TOKENS + 31) / 32 * 32, THREADS = MATH_THREADS + 32 + SCALE_THREADS;
    static_assert(!REALLOCATES_REGISTERS || THREADS % 128 == 0,
                  "setmaxnreg is for whole warpgroups: a warpgroup of three warps would wait for ever");
    static constexpr uint32_t FULL_ARRIVALS = 1 + SCALE_THREADS / 32, EMPTY_ARRIVALS = MATH_WARPS;

    static_assert(ROWS == ROW_PASSES * WARPGROUPS * WGMMA_ROWS && PASSES > 0, "every warpgroup has whole wgmmas");
    static_assert(ROW_PASSES == 1 || COLUMN_PASSES == 1, "passes are more rows, or parts of the columns, not both");
    static_assert(WEIGHTS_PER_SCALE == SCALE_BLOCK || WEIGHTS_PER_SCALE == 64 || WEIGHTS_PER_SCALE == (SWAPPED ? 32 : 1));
    static_assert(STRADDLES || WEIGHTS % WEIGHTS_PER_ENTRY == 0 || SCALE_BLOCK % WEIGHTS == 0,
                  "a scale of B begins where an entry begins");
    static_assert(!STRADDLES || COLUMN_PASSES == 1, "a pass of some columns does not know where its scale block of B begins");
    static_assert(COLUMNS % 8 == 0 && COLUMNS <= 256, "wgmma has 8 columns or a multiple of 8, 256 at most");
    static_assert(TOKENS % 8 == 0 && WEIGHTS % 8 == 0, "the swizzle repeats after 8 rows of 128 bytes");
    static_assert(TOKENS <= 256 && WEIGHTS <= 256, "the box of a tensor copy has 256 rows at most");

    // SWAPPED: a thread needs the scale products of two columns of every eight. They are neighbours, in the sequence of its sums.
    // Four neighbouring lanes read 16 bytes each, TOKENS / 4 + 4 floats apart, without bank conflicts.
    using TokenScales = std::conditional_t<SWAPPED, float[WEIGHT_SCALES][4][TOKENS / 4 + 4], float[TOKENS]>;
    using WeightScales = std::conditional_t<SWAPPED, Nothing, float[STAGES][WEIGHT_SCALES]>;

    alignas(1024) uint8_t tokens[STAGES][TOKENS * SCALE_BLOCK];
    alignas(1024) uint8_t weights[STAGES][WEIGHTS * SCALE_BLOCK];
    TokenScales token_scales[STAGES];
    [[no_unique_address]] WeightScales weight_scales;
    Barrier full[STAGES], empty[STAGES];

    // One thread calls this. Then all threads must synchronise.
    __device__ __forceinline__ void initialise() { initialise_ring(FULL_ARRIVALS); }
    __device__ __forceinline__ void initialise_ring(uint32_t full_arrivals) {
        this->initialise_barriers(full_arrivals, EMPTY_ARRIVALS);
    }

    // Waits until the stage of the CTA's K block number `block` is empty.
    __device__ __forceinline__ void wait_for_stage_of(int block) { wait(&empty[block % STAGES], block / STAGES % 2 ^ 1); }

    __device__ __forceinline__ float& scale_product(int stage, int entry, int token) {
        return token_scales[stage][entry][token % 8 / 2][token / 8 * 2 + token % 2];
    }
};

// A tile whose result is made by a cluster of CTAs.
template <class Tile, int CTAS_PER_RESULT_>
struct TileOfCluster : Tile {
    static constexpr int CTAS_PER_RESULT = CTAS_PER_RESULT_;
};

}  // namespace zoo
