// From h in registers to memory: 16 bits each, or e4m3 under a scale for 1 x 128 or under one that is known beforehand.
//
// 16 bits: each warp its eight columns, 16 bytes a token, which stmatrix turns in a piece of shared memory of its own.
//
// e4m3, of stored weights (packed ones': gated_pairs.cuh): rows of 64 columns of a tile, or of the 128 of two tiles one after the other, are put
// together by all warps in shared memory, in the order in which the next product takes them, and leave it in whole rows. A scale for 1 x 128:
//
//     left tile     h waits in shared memory, each thread's its own
//     right tile    |h| of 128 columns: among a warp's lanes, then of eight warps by a thread a token, which makes the scale
//
// Named barrier 1 is where the warps that multiply meet: before magnitudes are read, before multipliers are, before rows are. A warp that has
// read its rows arrives at `free`, so that nobody waits for anybody before the next are written, unless it has to.
#pragma once

#include <cstdint>

#include "common/fp8.cuh"
#include "common/half.cuh"
#include "common/named_barrier.cuh"
#include "common/warp.cuh"
#include "gemm/four_bit/gated_result.cuh"
#include "gemm/epilogue/straight_fp8b128.cuh"

namespace zoo {

// By one warp. `first`: its first column.
template <class Tile, class Half, Weights FORMAT>
__device__ __forceinline__ void store_gated_halves(const FourBitResult<FORMAT>& d, StagedGates<Tile>& staged, const Work& work,
                                                   int first, int lane, const float (&h)[Tile::SUMS / 2]) {
    constexpr int STEP = StagedGates<Tile>::ROWS, LAST = Tile::SUMS / 2 - 2;  // tokens at once
    uint8_t* mine = staged.bytes + lane * StagedGates<Tile>::ROW;
    uint8_t* place = d.at(work.token + lane, first);
    const int left = work.end_token - work.token - lane;
#pragma unroll
    for (int token = 0; token < Tile::TOKENS; token += STEP) {
        __syncwarp();  // those before have been read
        uint32_t matrices[4];
#pragma unroll
        for (int m = 0; m < 4; m++) {
            const int k = min(token / 4 + m * 2, LAST);
            matrices[m] = encode_pair<Half>(h[k], h[k + 1]);
        }
        store_matrices_transposed<4>(shared_address(mine), matrices);
        __syncwarp();
        if (token < left && token + lane < Tile::TOKENS)
            *reinterpret_cast<uint4*>(place + token * d.stride * 2) = *reinterpret_cast<const uint4*>(mine);
    }
}

template <class Tile>
__device__ __forceinline__ void store_halves_of_h(const auto& d, StagedGates<Tile>& staged, const Work& work,
                                                  const float (&h)[Tile::SUMS / 2]) {
    const int thread = thread_index_anew(), first = work.weight / 2 + thread / 32 * 8;
    if (first >= d.columns()) return;
    if (d.finish.kind == IS_BF16)
        store_gated_halves<Tile, bf16>(d.finish, staged, work, first, thread % 32, h);
    else
        store_gated_halves<Tile, f16>(d.finish, staged, work, first, thread % 32, h);
}

// e4m3. Where each group has a place for `rows` rows, its scales lie apart, too; elsewhere `rows` and scales_group are 0.
struct GatedElements {
    float* scales;  // for 1 x 128; null where h is not quantised
    int64_t scales_group, scales_row, scales_block;
    int rows;
    StraightFp8b128 format;
    const float* known;  // what they all are, or null
    bool one_known;      // of all groups
    bool in_fragments;   // order of columns: the 4 x 4 words of each 64 bytes transposed

    __device__ __forceinline__ bool wanted() const { return scales != nullptr; }

    // Of the 128 columns that the tile's first belongs to.
    template <class Tile>
    __device__ __forceinline__ void store_scale(const Work& work, int row, float scale) const {
        if (row < work.end_token)
            scales[work.group * scales_group + (row - work.group * rows) * scales_row +
                   work.weight / (2 * Tile::WEIGHTS) * scales_block] = scale;
    }

    // Where byte c < 64 lies.
    __device__ __forceinline__ int place_of(int c) const { return in_fragments ? c / 4 % 4 * 16 + c / 16 * 4 + c % 4 : c; }
};

template <class Tile>
struct GatedRows {
    static constexpr int VALUES = Tile::SUMS / 2, COLUMNS = Tile::WEIGHTS / 2, PITCH = 2 * COLUMNS + 16;
    static constexpr int BYTES = VALUES * Tile::MATH_THREADS * 4, OF_ROWS = Tile::TOKENS * PITCH;
    static_assert(COLUMNS == 64 && OF_ROWS <= BYTES);
    using Left = Nothing;              // of a left tile, in registers
    alignas(16) uint8_t bytes[BYTES];  // h of a left tile; then rows of e4m3
    uint32_t largest[Tile::MATH_WARPS][Tile::TOKENS];
    float multipliers[Tile::TOKENS];
    Barrier free;

    // By one thread.
    __device__ __forceinline__ void initialise() { zoo::initialise(&free, Tile::MATH_WARPS); }

    static __device__ __forceinline__ void synchronise() { synchronise_threads(1, Tile::MATH_THREADS); }

    __device__ __forceinline__ float* waiting(int thread) { return reinterpret_cast<float*>(bytes) + thread; }

    // Until the rows before have been read; `turn` counts rows that are put together.
    __device__ __forceinline__ void wait_until_free(uint32_t turn) { wait(&free, turn % 2 ^ 1); }

    // Of a left tile.
    __device__ __forceinline__ void keep(uint32_t turn, const float (&h)[VALUES], Left&) {
        wait_until_free(turn);
        float* place = waiting(thread_index_anew());
#pragma unroll
        for (int k = 0; k < VALUES; k++) place[k * Tile::MATH_THREADS] = h[k];
    }

    // From the largest magnitudes of a lane's tokens to multipliers of all.
    __device__ __forceinline__ void find_multipliers(const GatedElements& q, const Work& work, uint32_t (&magnitudes)[VALUES]) {
        constexpr int LANES = 8, OWN = VALUES > LANES ? VALUES / LANES : 1, SHARING = OWN * LANES / VALUES;
        const int thread = thread_index_anew(), lane = thread % 32, place = lane / 4;
        group_reduce_scatter<LANES, 4>(magnitudes, place, [](uint32_t a, uint32_t b) { return max(a, b); });
#pragma unroll
        for (int i = 0; i < OWN; i++) {
            const int k = place / SHARING * OWN + i;
            if (place % SHARING == 0) largest[thread / 32][k / 2 * 8 + lane % 4 * 2 + k % 2] = magnitudes[i];
        }
        synchronise();
        if (thread < Tile::TOKENS) {
            uint32_t of_all = 0;
#pragma unroll
            for (int warp = 0; warp < Tile::MATH_WARPS; warp++) of_all = max(of_all, largest[warp][thread]);
            const uint32_t scale = q.format.scale_of(__uint_as_float(of_all));
            multipliers[thread] = q.format.multiplier(scale);
            q.template store_scale<Tile>(work, work.token + thread, __uint_as_float(scale));
        }
        synchronise();
    }

    // A tile's columns of rows; `to_row`: where the first of a row's bytes are, 64 for those of a right tile. Columns that do not exist are
    // zeros, whatever the scale is.
    __device__ __forceinline__ void lay(const GatedElements& q, int to_row, bool exist, float known, const float (&h)[VALUES]) {
        const int thread = thread_index_anew(), lane = thread % 32;
        uint8_t* place = bytes + lane % 4 * 2 * PITCH + to_row + q.place_of(thread / 32 * 8 + lane / 4);
        const float* multiplier = multipliers + lane % 4 * 2;
        const bool each = q.known == nullptr && exist;
        if (!exist) known = 0;
#pragma unroll
        for (int k = 0; k < VALUES; k += 2) {
            float2 two = make_float2(known, known);
            if (each) two = *reinterpret_cast<const float2*>(multiplier + k * 4);
            const uint32_t pair = Fp8<e4m3>::encode(__fmul_rn(h[k], two.x), __fmul_rn(h[k + 1], two.y));
            place[k * 4 * PITCH] = pair;
            place[(k * 4 + 1) * PITCH] = pair >> 8;
        }
    }

    // Of a tile that is the last with its scales, all of them: `second`, a right one, whose left one has been kept.
    template <Weights FORMAT>
    __device__ __forceinline__ void quantise_and_store(const FourBitResult<FORMAT>& d, const GatedElements& q, const Work& work,
                                                       bool second, uint32_t turn, const float (&h)[VALUES], const Left&) {
        float left[VALUES], known = 0;
        if (!second) wait_until_free(turn);  // or keep() has
        if (q.known == nullptr) {
            uint32_t magnitudes[VALUES];
            const float* place = waiting(thread_index_anew());
#pragma unroll
            for (int k = 0; k < VALUES; k++) {
                left[k] = 0;
                if (second) left[k] = place[k * Tile::MATH_THREADS];
                magnitudes[k] = max(__float_as_uint(fabsf(h[k])), __float_as_uint(fabsf(left[k])));
            }
            find_multipliers(q, work, magnitudes);
        } else {
            const float scale = q.known[q.one_known ? 0 : work.group];
            const int thread = thread_index_anew();
            known = __frcp_rn(scale);
            if (thread < Tile::TOKENS && work.weight % (2 * Tile::WEIGHTS) == 0)
                q.template store_scale<Tile>(work, work.token + thread, scale);
        }
        lay(q, second ? COLUMNS : 0, work.weight / 2 + thread_index_anew() / 32 * 8 < d.columns / 2, known, h);
        if (second) lay(q, 0, true, known, left);
        synchronise();
        store(d, q, work, second);
    }

   private:
    template <Weights FORMAT>
    __device__ __forceinline__ void store(const FourBitResult<FORMAT>& d, const GatedElements& q, const Work& work, bool second) {
        const int thread = thread_index_anew(), shift = second ? 3 : 2, step = Tile::MATH_THREADS >> shift;  // 16 bytes a thread
        const int piece = thread & (1 << shift) - 1, first = thread >> shift;
        const int column = work.weight / 2 - (second ? COLUMNS : 0) + piece * 16;
        const int columns = d.columns / 2, end = q.in_fragments ? (columns + 63) / 64 * 64 : columns;
        const int rows = column < end ? min(work.end_token - work.token, Tile::TOKENS) : 0;
        uint8_t* to = d.d + (work.token + first) * d.stride + column;
        const uint8_t* from = bytes + first * PITCH + piece * 16;
#pragma unroll 4
        for (int r = first; r < rows; r += step, to += step * d.stride, from += step * PITCH)
            *reinterpret_cast<uint4*>(to) = *reinterpret_cast<const uint4*>(from);
        __syncwarp();
        if (thread % 32 == 0) arrive(&free);
    }
};

}  // namespace zoo
