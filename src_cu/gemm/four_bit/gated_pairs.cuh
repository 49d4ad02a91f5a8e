// Rows of h in e4m3, put together two tokens at a time: what a warp has of two tokens are 16 bits of each of its eight columns, which stmatrix
// turns into 16 bytes of a row for both, and who stores them takes them apart again. For 64 tokens that is one stmatrix a warp, where their
// elements one by one would be 16 stores of a byte.
//
//     row p of shared memory    column 0 of token 2 p, column 0 of token 2 p + 1, column 1 of token 2 p, ...: 256 bytes, or half of that
//                               where tiles share no scales. Its units of 16 bytes, of a warp each, are swizzled, so that neither eight
//                               rows' units of one warp nor what half a warp takes at once meet in a bank
//
// A scale for 1 x 128:
//
//     left tile     h waits in shared memory, each thread's its own; of 64 FP8 tokens in registers
//     right tile    |h| of 128 columns: among a warp's lanes, then of eight warps by a thread a token, which makes the scale
//
// Named barrier 1 is where the warps that multiply meet: before magnitudes are read, before multipliers are, before rows are. A warp that has
// read its rows arrives at `free`, so that nobody waits for anybody before the next are written, unless it has to.
#pragma once

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "common/magnitude.cuh"
#include "common/matrix_store.cuh"
#include "common/named_barrier.cuh"
#include "gemm/four_bit/gated_store.cuh"

namespace zoo {

template <class Tile>
struct GatedPairs {
    static constexpr int VALUES = Tile::SUMS / 2, COLUMNS = Tile::WEIGHTS / 2;
    static constexpr int EIGHT = 8, ROWS = std::max(Tile::TOKENS / 2, EIGHT), HALF = 2 * COLUMNS, ROW = 2 * HALF, UNIT = 16;
    static constexpr int COUNT = std::min(std::max(VALUES / 4, 1), 4), STEP = COUNT * 4;  // matrices at once, and their values
    static constexpr bool IN_REGISTERS =
        Tile::TOKENS == 64 && !Tile::OF_BF16;  // h of a left tile: it pays where a stage comes of it
    static constexpr int OF_LEFT = IN_REGISTERS ? 0 : VALUES * Tile::MATH_THREADS * 4;
    static constexpr int OF_MAGNITUDES = Tile::MATH_WARPS * Tile::TOKENS * 4, OF_ROWS = ROWS * ROW;
    static constexpr int BYTES = std::max(OF_LEFT + OF_MAGNITUDES, OF_ROWS);
    struct Registers {
        float h[VALUES];
    };
    using Left = std::conditional_t<IN_REGISTERS, Registers, Nothing>;
    static_assert(COLUMNS == 64 && Tile::MATH_WARPS * UNIT == HALF);
    alignas(128) uint8_t bytes[BYTES];  // h of a left tile and largest magnitudes of each warp's columns; then rows
    float multipliers[Tile::TOKENS];
    Barrier free;

    // By one thread.
    __device__ __forceinline__ void initialise() { zoo::initialise(&free, Tile::MATH_WARPS); }

    static __device__ __forceinline__ void synchronise() { synchronise_threads(1, Tile::MATH_THREADS); }

    __device__ __forceinline__ float* waiting(int thread) { return reinterpret_cast<float*>(bytes) + thread; }

    __device__ __forceinline__ uint32_t* largest(int warp) {
        return reinterpret_cast<uint32_t*>(bytes + OF_LEFT) + warp * Tile::TOKENS;
    }

    // Until the rows before have been read; `turn` counts rows that are put together.
    __device__ __forceinline__ void wait_until_free(uint32_t turn) { wait(&free, turn % 2 ^ 1); }

    // Of a left tile.
    __device__ __forceinline__ void keep(uint32_t turn, const float (&h)[VALUES], Left& left) {
        if constexpr (IN_REGISTERS) {
#pragma unroll
            for (int k = 0; k < VALUES; k++) left.h[k] = h[k];
        } else {
            wait_until_free(turn);
            float* place = waiting(thread_index_anew());
#pragma unroll
            for (int k = 0; k < VALUES; k++) place[k * Tile::MATH_THREADS] = h[k];
        }
    }
    __device__ __forceinline__ void fetch(const Left& left, float (&h)[VALUES]) {
        const float* place = waiting(thread_index_anew());
#pragma unroll
        for (int k = 0; k < VALUES; k++)
            if constexpr (IN_REGISTERS)
                h[k] = left.h[k];
            else
                h[k] = place[k * Tile::MATH_THREADS];
    }

    // From the largest magnitudes of a lane's tokens to multipliers of all, and scales, if they are to be stored. `scale_of(magnitude, token)`: of
    // the largest of these columns.
    __device__ __forceinline__ void find_multipliers(const GatedElements& q, const Work& work, bool stores_scales,
                                                     uint32_t (&magnitudes)[VALUES], const auto& scale_of) {
        constexpr int LANES = 8, OWN = VALUES > LANES ? VALUES / LANES : 1, SHARING = OWN * LANES / VALUES;
        const int thread = thread_index_anew(), lane = thread % 32, place = lane / 4;
        group_reduce_scatter<LANES, 4>(magnitudes, place, [](uint32_t a, uint32_t b) { return max(a, b); });
#pragma unroll
        for (int i = 0; i < OWN; i++) {
            const int k = place / SHARING * OWN + i;
            if (place % SHARING == 0) largest(thread / 32)[k / 2 * 8 + lane % 4 * 2 + k % 2] = magnitudes[i];
        }
        synchronise();
        if (thread < Tile::TOKENS) {
            uint32_t of_all = 0;
#pragma unroll
            for (int warp = 0; warp < Tile::MATH_WARPS; warp++) of_all = max(of_all, largest(warp)[thread]);
            const ScaleOfRow found = scale_of(of_all, thread);
            multipliers[thread] = found.multiplier;
            if (stores_scales) q.template store_scale<Tile>(work, work.token + thread, found.scale);
        }
        synchronise();
    }

    // Of a tile that is the last with its scales, all of them: `second`, a right one, whose left one has been kept.
    template <Weights FORMAT>
    __device__ __forceinline__ void quantise_and_store(const FourBitResult<FORMAT>& d, const GatedElements& q, const Work& work,
                                                       bool second, uint32_t turn, const float (&h)[VALUES], const Left& kept) {
        quantise_and_store(d, q, work, second, true, turn, h, kept, [](uint32_t largest, int) { return largest; });
    }

    // The same where others may have columns with the same scales: `first`, whether these are the first of all; largest_of_all(magnitude, token).
    template <Weights FORMAT>
    __device__ __forceinline__ void quantise_and_store(const FourBitResult<FORMAT>& d, const GatedElements& q, const Work& work,
                                                       bool second, bool first, uint32_t turn, const float (&h)[VALUES],
                                                       const Left& kept, const auto& largest_of_all) {
        float left[VALUES], known = 0;
        if (IN_REGISTERS || !second) wait_until_free(turn);  // or keep() has
        if (q.known == nullptr) {
            uint32_t magnitudes[VALUES];
            if (second) {
                fetch(kept, left);
#pragma unroll
                for (int k = 0; k < VALUES; k++) magnitudes[k] = __float_as_uint(larger_magnitude(h[k], left[k]));
            } else {
#pragma unroll
                for (int k = 0; k < VALUES; k++) magnitudes[k] = __float_as_uint(fabsf(h[k]));
            }
            find_multipliers(q, work, first, magnitudes,
                             [&](uint32_t own, int token) { return q.found_from(largest_of_all(own, token)); });
        } else {
            const ScaleOfRow given = q.known_of(work.group);
            known = given.multiplier;
            const int thread = thread_index_anew();
            if (thread < Tile::TOKENS && work.weight % (2 * Tile::WEIGHTS) == 0)
                q.template store_scale<Tile>(work, work.token + thread, given.scale);
        }
        const bool each = q.known == nullptr;
        lay(second, work.weight / 2 + thread_index_anew() / 32 * 8 < d.columns / 2, each, known, h);
        if (second) lay(0, true, each, known, left);
        synchronise();
        store(d, q, work, second);
    }

   protected:
    // What the units of row p are swizzled by; a right tile's by 4 more.
    static __device__ __forceinline__ int swizzle(int p) { return p & 4 | (p & 1) << 1 | p >> 1 & 1; }

    // A tile's columns; `half`: 1 for those of a right tile. Columns that do not exist are zeros, whatever the scale is.
    __device__ __forceinline__ void lay(int half, bool exist, bool each, float known, const float (&h)[VALUES]) {
        const int thread = thread_index_anew(), p = thread % 32 / 8 * 8 + thread % 2 * 4 + thread % 8 / 2;
        const uint32_t unit = thread / 32 ^ swizzle(p) ^ half * 4;
        const uint32_t row = shared_address(bytes) + p * ROW + half * HALF + unit * UNIT, mask = exist ? ~0u : 0u;
        const float* multiplier = multipliers + thread % 4 * 2;
#pragma unroll
        for (int first = 0; first < VALUES; first += STEP) {
            uint32_t matrices[COUNT];
#pragma unroll
            for (int m = 0; m < COUNT; m++) {
                const int k = first + m * 4;
                auto pair = [&](int i) -> uint32_t {
                    float2 by = make_float2(known, known);
                    if (each) by = *reinterpret_cast<const float2*>(multiplier + i * 4);
                    return Fp8<e4m3>::encode(__fmul_rn(h[i], by.x), __fmul_rn(h[i + 1], by.y));
                };
                matrices[m] = pair(k);
                if constexpr (VALUES >= 4) matrices[m] |= pair(k + 2) << 16;
                matrices[m] &= mask;
            }
            store_matrices_transposed<COUNT>(row + first / STEP * (COUNT * EIGHT * ROW), matrices);
        }
    }

    // 16 bytes of two tokens each by a thread, four columns at a time: as they lie, or, in fragments, from each 16 of a tile's.
    template <Weights FORMAT>
    __device__ __forceinline__ void store(const FourBitResult<FORMAT>& d, const GatedElements& q, const Work& work, bool second) {
        const int thread = thread_index_anew(), shift = second ? 3 : 2, step = Tile::MATH_THREADS >> shift;
        const int piece = thread & (1 << shift) - 1, first = thread >> shift, half = piece / 4, four = piece % 4;
        const int column = work.weight / 2 - (second ? COLUMNS : 0) + piece * 16;
        const int columns = d.columns / 2, end = q.in_fragments ? (columns + 63) / 64 * 64 : columns;
        const int rows = column < end ? min(work.end_token - work.token, Tile::TOKENS) : 0;
        const int within = q.in_fragments ? four * 8 : four * 32, next = q.in_fragments ? 32 : 8;  // bytes of a half's row
        const int from = first * ROW + half * HALF + (within ^ (swizzle(first) ^ half * 4) * UNIT);
        uint8_t* to = d.d + (work.token + 2 * first) * d.stride + column;
#pragma unroll 1
        for (int p = first, at = 0; 2 * p < rows; p += step, at += step * ROW, to += 2 * step * d.stride) {
            uint32_t even[4], odd[4];
#pragma unroll
            for (int i = 0; i < 4; i++) {
                const uint2 of_both = *reinterpret_cast<const uint2*>(bytes + (from ^ i * next) + at);
                even[i] = __byte_perm(of_both.x, of_both.y, 0x6420);
                odd[i] = __byte_perm(of_both.x, of_both.y, 0x7531);
            }
            *reinterpret_cast<uint4*>(to) = make_uint4(even[0], even[1], even[2], even[3]);
            if (2 * p + 1 < rows) *reinterpret_cast<uint4*>(to + d.stride) = make_uint4(odd[0], odd[1], odd[2], odd[3]);
        }
        __syncwarp();
        if (thread % 32 == 0) arrive(&free);
    }
};

}  // namespace zoo
