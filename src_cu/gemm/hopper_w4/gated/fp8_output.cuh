// h in e4m3 with scales, from registers to memory. gated/pipeline.cuh includes this file.
//
// A row of shared memory has two tokens. A warp has 16 bits of each of its eight columns for the two tokens. stmatrix writes the columns as 16 bytes
// of a row, and the thread that stores the row separates the tokens. 64 tokens need one stmatrix a warp. Single bytes would need 16 stores.
//
//     row p of shared memory    column 0 of token 2 p, column 0 of token 2 p + 1, column 1 of token 2 p, ...
//                               256 bytes of a double tile, 128 of a single tile. Each warp has a piece of 16 bytes. By the swizzle, the pieces
//                               that a warp writes in eight rows are in different banks, and the bytes that half a warp reads, too
//
// A scale covers 128 columns of a row, a double tile (gated/schedule.cuh):
//
//     one CTA    left tile     h waits in shared memory, each thread's own; with 64 FP8 tokens, in registers
//                right tile    a warp's lanes find max|h| of 128 columns; a thread a token reduces over eight warps and makes the scale
//     cluster    both tiles    a thread a token exchanges max|h| of 64 columns with the other CTA, and makes the scale
//
// The math warps synchronise at named barrier 1 before they read magnitudes, multipliers and rows. A warp that has read its rows arrives at `free`. So a
// warp waits only before it writes the next rows.
#pragma once

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "common/cluster.cuh"
#include "common/magnitude.cuh"
#include "common/matrix_store.cuh"
#include "common/named_barrier.cuh"
#include "gemm/hopper_w4/gated/epilogue.cuh"

namespace zoo {

struct RowScale {
    float scale, multiplier;
};

// Kernel parameters of h in e4m3.
struct Fp8OutputArguments {
    float* scales;  // for 1 x 128; null where h is in 16 bits
    int64_t group_stride, row_stride, block_stride;
    int slot_rows;  // the rows of a slot; without slots, this and group_stride are 0
    BranchlessFp8b128 format;
    const float* known_scale;  // replaces scales of max|h|, or null
    bool one_known_scale;      // for all groups
    bool in_fragments;         // fragment order

    __device__ __forceinline__ bool enabled() const { return scales != nullptr; }

    __device__ __forceinline__ RowScale known(int group) const {
        const float scale = known_scale[one_known_scale ? 0 : group];
        return {scale, __frcp_rn(scale)};
    }
    __device__ __forceinline__ RowScale of_magnitude(uint32_t largest) const {
        const uint32_t scale = format.scale_of(__uint_as_float(largest));
        return {__uint_as_float(scale), format.multiplier(scale)};
    }

    template <class Tile>
    __device__ __forceinline__ void store_scale(const Work& work, int row, float scale) const {
        if (row < work.end_token)
            scales[work.group * group_stride + (row - work.group * slot_rows) * row_stride +
                   work.weight / (2 * Tile::WEIGHTS) * block_stride] = scale;
    }
};

// One CTA alone: it computes both tiles of a double tile, or single tiles under a known scale.
template <class Tile>
struct Fp8Output {
    static constexpr int VALUES = Tile::SUMS / 2, COLUMNS = Tile::WEIGHTS / 2;
    static constexpr int EIGHT = 8, ROWS = std::max(Tile::TOKENS / 2, EIGHT), HALF = 2 * COLUMNS, ROW = 2 * HALF, PIECE = 16;
    static constexpr int COUNT = std::min(std::max(VALUES / 4, 1), 4), STEP = COUNT * 4;  // matrices at once, and their values
    // h of a left tile waits in registers where the shared memory pays for one more stage.
    static constexpr bool IN_REGISTERS = Tile::TOKENS == 64 && !Tile::OF_BF16;
    static constexpr int LEFT_BYTES = IN_REGISTERS ? 0 : VALUES * Tile::MATH_THREADS * 4;
    static constexpr int MAGNITUDE_BYTES = Tile::MATH_WARPS * Tile::TOKENS * 4;
    static constexpr int ROW_BYTES = ROWS * ROW, BYTES = std::max(LEFT_BYTES + MAGNITUDE_BYTES, ROW_BYTES);
    struct Registers {
        float h[VALUES];
    };
    using LeftTile = std::conditional_t<IN_REGISTERS, Registers, Nothing>;
    static_assert(COLUMNS == 64 && Tile::MATH_WARPS * PIECE == HALF);
    alignas(128) uint8_t bytes[BYTES];  // h of a left tile and each warp's magnitudes; then rows
    float multipliers[Tile::TOKENS];
    Barrier free;

    // One thread calls this.
    __device__ __forceinline__ void initialise() { zoo::initialise(&free, Tile::MATH_WARPS); }

    static __device__ __forceinline__ void synchronise() { synchronise_threads(1, Tile::MATH_THREADS); }

    __device__ __forceinline__ float* left_of(int thread) { return reinterpret_cast<float*>(bytes) + thread; }

    __device__ __forceinline__ uint32_t* magnitudes_of(int warp) {
        return reinterpret_cast<uint32_t*>(bytes + LEFT_BYTES) + warp * Tile::TOKENS;
    }

    // Waits until all warps have read the previous rows from shared memory. `count`: how often rows have been put together.
    __device__ __forceinline__ void wait_until_free(uint32_t count) { wait(&free, count % 2 ^ 1); }

    // Keeps h of a left tile until the right tile has its scale.
    __device__ __forceinline__ void keep_left(uint32_t count, const float (&h)[VALUES], LeftTile& left) {
        if constexpr (IN_REGISTERS) {
#pragma unroll
            for (int k = 0; k < VALUES; k++) left.h[k] = h[k];
        } else {
            wait_until_free(count);
            float* to = left_of(reread_thread_index());
#pragma unroll
            for (int k = 0; k < VALUES; k++) to[k * Tile::MATH_THREADS] = h[k];
        }
    }
    __device__ __forceinline__ void reload_left(const LeftTile& left, float (&h)[VALUES]) {
        const float* from = left_of(reread_thread_index());
#pragma unroll
        for (int k = 0; k < VALUES; k++)
            if constexpr (IN_REGISTERS)
                h[k] = left.h[k];
            else
                h[k] = from[k * Tile::MATH_THREADS];
    }

    // Turns the magnitudes of a lane's tokens into multipliers of all tokens, and into scales in memory. scale_of(magnitude, token) gets the largest
    // magnitude of these columns.
    __device__ __forceinline__ void find_multipliers(const Fp8OutputArguments& q, const Work& work, bool stores_scales,
                                                     uint32_t (&magnitudes)[VALUES], const auto& scale_of) {
        constexpr int LANES = 8, OWN = VALUES > LANES ? VALUES / LANES : 1, SHARING = OWN * LANES / VALUES;
        const int thread = reread_thread_index(), lane = thread % 32, eighth = lane / 4;
        group_reduce_scatter<LANES, 4>(magnitudes, eighth, [](uint32_t a, uint32_t b) { return max(a, b); });
#pragma unroll
        for (int i = 0; i < OWN; i++) {
            const int k = eighth / SHARING * OWN + i;
            if (eighth % SHARING == 0) magnitudes_of(thread / 32)[k / 2 * 8 + lane % 4 * 2 + k % 2] = magnitudes[i];
        }
        synchronise();
        if (thread < Tile::TOKENS) {
            uint32_t largest = 0;
#pragma unroll
            for (int warp = 0; warp < Tile::MATH_WARPS; warp++) largest = max(largest, magnitudes_of(warp)[thread]);
            const RowScale found = scale_of(largest, thread);
            multipliers[thread] = found.multiplier;
            if (stores_scales) q.template store_scale<Tile>(work, work.token + thread, found.scale);
        }
        synchronise();
    }

    // Stores the last tile of a scale block. `both`: this is a right tile, and keep_left() has its left tile.
    template <WeightFormat FORMAT>
    __device__ __forceinline__ void quantise_and_store(const FourBitResult<FORMAT>& d, const Fp8OutputArguments& q,
                                                       const Work& work, bool both, uint32_t count, const float (&h)[VALUES],
                                                       const LeftTile& kept) {
        quantise_and_store(d, q, work, both, true, count, h, kept, [](uint32_t largest, int) { return largest; });
    }

    // The general form, where the other CTA may have columns of the same scale block. `first`: these columns include the scale block's first, so this
    // CTA stores the scales. largest_of_block(magnitude, token) includes the other CTA's columns.
    template <WeightFormat FORMAT>
    __device__ __forceinline__ void quantise_and_store(const FourBitResult<FORMAT>& d, const Fp8OutputArguments& q,
                                                       const Work& work, bool both, bool first, uint32_t count,
                                                       const float (&h)[VALUES], const LeftTile& kept,
                                                       const auto& largest_of_block) {
        float left[VALUES], known = 0;
        if (IN_REGISTERS || !both) wait_until_free(count);  // keep_left() has waited otherwise
        if (q.known_scale == nullptr) {
            uint32_t magnitudes[VALUES];
            if (both) {
                reload_left(kept, left);
#pragma unroll
                for (int k = 0; k < VALUES; k++) magnitudes[k] = __float_as_uint(larger_magnitude(h[k], left[k]));
            } else {
#pragma unroll
                for (int k = 0; k < VALUES; k++) magnitudes[k] = __float_as_uint(fabsf(h[k]));
            }
            find_multipliers(q, work, first, magnitudes,
                             [&](uint32_t own, int token) { return q.of_magnitude(largest_of_block(own, token)); });
        } else {
            const RowScale given = q.known(work.group);
            known = given.multiplier;
            const int thread = reread_thread_index();
            if (thread < Tile::TOKENS && work.weight % (2 * Tile::WEIGHTS) == 0)
                q.template store_scale<Tile>(work, work.token + thread, given.scale);
        }
        const bool per_token = q.known_scale == nullptr;
        stage(both, work.weight / 2 + reread_thread_index() / 32 * 8 < d.columns / 2, per_token, known, h);
        if (both) stage(0, true, per_token, known, left);
        synchronise();
        store(d, q, work, both);
    }

   protected:
    // The swizzle of the pieces of row p. The pieces of a right tile are 4 further.
    static __device__ __forceinline__ int swizzle(int p) { return p & 4 | (p & 1) << 1 | p >> 1 & 1; }

    // Writes the columns of a tile to shared memory. `half`: 1 for a right tile next to its left tile. Columns that do not exist become zeros under
    // any scale, NaN included.
    __device__ __forceinline__ void stage(int half, bool exist, bool per_token, float known, const float (&h)[VALUES]) {
        const int thread = reread_thread_index(), p = thread % 32 / 8 * 8 + thread % 2 * 4 + thread % 8 / 2;
        const uint32_t piece = thread / 32 ^ swizzle(p) ^ half * 4;
        const uint32_t row = shared_address(bytes) + p * ROW + half * HALF + piece * PIECE, mask = exist ? ~0u : 0u;
        const float* multiplier = multipliers + thread % 4 * 2;
#pragma unroll
        for (int first = 0; first < VALUES; first += STEP) {
            uint32_t matrices[COUNT];
#pragma unroll
            for (int m = 0; m < COUNT; m++) {
                const int k = first + m * 4;
                auto two_tokens = [&](int i) -> uint32_t {
                    float2 by = make_float2(known, known);
                    if (per_token) by = *reinterpret_cast<const float2*>(multiplier + i * 4);
                    return Fp8<e4m3>::encode(__fmul_rn(h[i], by.x), __fmul_rn(h[i + 1], by.y));
                };
                matrices[m] = two_tokens(k);
                if constexpr (VALUES >= 4) matrices[m] |= two_tokens(k + 2) << 16;
                matrices[m] &= mask;
            }
            store_matrices_transposed<COUNT>(row + first / STEP * (COUNT * EIGHT * ROW), matrices);
        }
    }

    // Each thread stores 16 bytes of two tokens, four columns at a time. In fragment order the four columns come from each 16 of the tile's.
    template <WeightFormat FORMAT>
    __device__ __forceinline__ void store(const FourBitResult<FORMAT>& d, const Fp8OutputArguments& q, const Work& work,
                                          bool both) {
        const int thread = reread_thread_index(), shift = both ? 3 : 2, step = Tile::MATH_THREADS >> shift;
        const int piece = thread & (1 << shift) - 1, first = thread >> shift, half = piece / 4, four = piece % 4;
        const int column = work.weight / 2 - (both ? COLUMNS : 0) + piece * 16;
        const int columns = d.columns / 2, end = q.in_fragments ? (columns + 63) / 64 * 64 : columns;
        const int rows = column < end ? min(work.end_token - work.token, Tile::TOKENS) : 0;
        const int within = q.in_fragments ? four * 8 : four * 32, next = q.in_fragments ? 32 : 8;  // bytes of a half's row
        const int from = first * ROW + half * HALF + (within ^ (swizzle(first) ^ half * 4) * PIECE);
        uint8_t* to = d.d + (work.token + 2 * first) * d.stride + column;
#pragma unroll 1
        for (int p = first, at = 0; 2 * p < rows; p += step, at += step * ROW, to += 2 * step * d.stride) {
            uint32_t even[4], odd[4];
#pragma unroll
            for (int i = 0; i < 4; i++) {
                const uint2 both_tokens = *reinterpret_cast<const uint2*>(bytes + (from ^ i * next) + at);
                even[i] = __byte_perm(both_tokens.x, both_tokens.y, 0x6420);
                odd[i] = __byte_perm(both_tokens.x, both_tokens.y, 0x7531);
            }
            *reinterpret_cast<uint4*>(to) = make_uint4(even[0], even[1], even[2], even[3]);
            if (2 * p + 1 < rows) *reinterpret_cast<uint4*>(to + d.stride) = make_uint4(odd[0], odd[1], odd[2], odd[3]);
        }
        __syncwarp();
        if (thread % 32 == 0) arrive(&free);
    }
};

// The largest magnitudes that the two CTAs of a cluster send each other. Two buffers alternate. A CTA sends to a buffer again only after it has
// received what the other CTA sent after reading that buffer.
template <int TOKENS>
struct MagnitudeExchange {
    uint32_t received[2][TOKENS];
    Barrier arrived[2];

    // One thread calls this.
    __device__ __forceinline__ void initialise() {
#pragma unroll
        for (Barrier& one : arrived) zoo::initialise(&one, 1);
    }

    // One thread for each token calls this. `count`: earlier exchanges.
    __device__ __forceinline__ uint32_t larger_of_both(uint32_t own, int token, uint32_t count) {
        const uint32_t buffer = count % 2;
        if (token == 0) arrive_expecting_bytes(&arrived[buffer], sizeof(received[buffer]));
        store_in_cta(&received[buffer][token], own, &arrived[buffer], cluster_rank() ^ 1);
        wait(&arrived[buffer], count / 2 % 2);
        return max(own, received[buffer][token]);
    }
};

template <class Tile>
struct Fp8OutputWithExchange : Fp8Output<Tile> {
    MagnitudeExchange<Tile::TOKENS> exchange;

    // One thread calls this.
    __device__ __forceinline__ void initialise() { Fp8Output<Tile>::initialise(), exchange.initialise(); }
};

// A cluster computes each double tile, one tile a CTA, so no h waits. A known scale replaces the one that is found: this costs less than a branch.
template <class Tile>
struct Fp8OutputByCluster : Fp8OutputWithExchange<Tile> {
    using Output = Fp8Output<Tile>;

    // `shared`: the other CTA has the other tile of the double tile. `exchanges`: earlier tiles with shared scales.
    template <WeightFormat FORMAT>
    __device__ __forceinline__ void quantise_and_store(const FourBitResult<FORMAT>& d, const Fp8OutputArguments& q,
                                                       const Work& work, bool shared, uint32_t count, uint32_t exchanges,
                                                       const float (&h)[Output::VALUES]) {
        this->wait_until_free(count);
        uint32_t magnitudes[Output::VALUES];
#pragma unroll
        for (int k = 0; k < Output::VALUES; k++) magnitudes[k] = __float_as_uint(fabsf(h[k]));
        const bool first = work.weight % (2 * Tile::WEIGHTS) == 0;
        this->find_multipliers(q, work, first, magnitudes, [&](uint32_t own, int token) {
            const uint32_t largest = shared ? this->exchange.larger_of_both(own, token, exchanges) : own;
            return q.known_scale == nullptr ? q.of_magnitude(largest) : q.known(work.group);
        });
        this->stage(0, work.weight / 2 + reread_thread_index() / 32 * 8 < d.columns / 2, true, 0, h);
        this->synchronise();
        this->store(d, q, work, false);
    }
};

// A cluster computes each double tile, or one CTA does in a launch without clusters.
template <class Tile>
struct Fp8OutputByClusterOrInSequence : Fp8OutputWithExchange<Tile> {
    using Output = Fp8Output<Tile>;

    template <WeightFormat FORMAT>
    __device__ __forceinline__ void quantise_and_store(const FourBitResult<FORMAT>& d, const Fp8OutputArguments& q,
                                                       const Work& work, bool both, bool shared, uint32_t count,
                                                       uint32_t exchanges, const float (&h)[Output::VALUES],
                                                       const Output::LeftTile& left) {
        const bool first = both || work.weight % (2 * Tile::WEIGHTS) == 0;
        Output::quantise_and_store(d, q, work, both, first, count, h, left, [&](uint32_t own, int token) {
            return shared ? this->exchange.larger_of_both(own, token, exchanges) : own;
        });
    }
};

}  // namespace zoo
