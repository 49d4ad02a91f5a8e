// From tensor memory to D, a few columns of sums at a time; a lane has one row of left.
#pragma once

#include "common/cluster.cuh"
#include "common/tensor_memory.cuh"
#include "gemm/block_scaled/finish.cuh"
#include "gemm/block_scaled/tile.cuh"

namespace zoo {

// The sums of one row of a tile, neighbouring columns, as they go to D. Tokens as rows: a lane writes what lies together. As
// columns: 32 lanes do.
template <class Tile>
__device__ __forceinline__ void store_chunk(const Finish& finish, const ScaledWork& work, int lane, int first,
                                            float (&sums)[Tile::CHUNK]) {
    if constexpr (Tile::SWAPPED) {
        if (lane >= work.columns) return;
        const int row = work.row + first, column = work.column + lane, count = work.rows - first;
        finish.finish_rows(sums, row, work.group, column, count);
        finish.store_rows(sums, row, column, count);
    } else {
        if (lane >= work.rows) return;
        const int row = work.row + lane, column = work.column + first, count = work.columns - first;
        finish.finish_columns(sums, {row, finish.alpha_of(work.group), finish.factor_of(row)}, work.group, column, count);
        finish.store_columns(sums, row, column, count);
    }
}

// Where nothing is summed: tokens as rows.
template <class Tile>
__device__ __forceinline__ void store_zeros(const Finish& finish, const ScaledWork& work, int lane) {
    static_assert(!Tile::SWAPPED);
    if (lane >= work.rows) return;
    const float zeros[8] = {};
#pragma unroll 1
    for (int i = 0; i < work.columns; i += 8) finish.store_columns(zeros, work.row + lane, work.column + i, 8);
}

// By the warps that store, tile after tile.
template <class Tile>
struct Drain {
    static constexpr int CHUNK = Tile::CHUNK;
    int turn = 0;

    // `take(first, sums)` gets each chunk of this lane's row that has columns in use. Those that the next tile's sums will overwrite
    // come first; when they have been read, the multiplier is told.
    template <class Take>
    __device__ __forceinline__ void run(Tile& tile, const ScaledWork& work, Take take) {
        const int used = Sides<Tile>(work).used, chunks = (used + CHUNK - 1) / CHUNK, second = turn % 2;
        const uint32_t quarter = (threadIdx.x / 32 % 4) * 32,
                       sums = tile.tensor_memory + (second ? Tile::SECOND : 0) + (quarter << 16);
        // Of the first sums the last columns are shared, of the second sums the first.
        const int shared = !Tile::OVERLAPPED ? chunks
                           : second          ? (Tile::COLUMNS - Tile::SECOND) / CHUNK
                                             : chunks - Tile::SECOND / CHUNK;
        wait(&tile.ready[second], turn / 2 % 2);
        fence_after_taking_over();
        if (shared <= 0) let_multiply(tile, second);
#pragma unroll 1
        for (int i = 0; i < chunks; i++) {
            const int chunk = second ? i : chunks - 1 - i;
            float values[CHUNK];
            if constexpr (CHUNK == 16) load_16_columns(values, sums + chunk * CHUNK);
            if constexpr (CHUNK == 32) load_32_columns(values, sums + chunk * CHUNK);
            wait_for_loads();
            if (i + 1 == min(shared, chunks)) let_multiply(tile, second);
            take(chunk * CHUNK, values);
        }
        turn++;
    }

    // The same for two chunks at a time: neighbours, or those that are half of the columns apart. `take(pair, sums)`.
    template <class Take>
    __device__ __forceinline__ void run_pairs(Tile& tile, const ScaledWork& work, bool neighbours, Take take) {
        constexpr int ALONE = Tile::SECOND / CHUNK, SHARED = (Tile::COLUMNS - Tile::SECOND) / CHUNK;  // chunks of the first sums
        const int used = Sides<Tile>(work).used, chunks = (used + CHUNK - 1) / CHUNK, pairs = (chunks + 1) / 2, second = turn % 2;
        const uint32_t quarter = (threadIdx.x / 32 % 4) * 32,
                       sums = tile.tensor_memory + (second ? Tile::SECOND : 0) + (quarter << 16);
        const int shared = !Tile::OVERLAPPED ? pairs
                           : second          ? (neighbours ? (SHARED + 1) / 2 : SHARED)
                                             : (neighbours ? pairs - ALONE / 2 : chunks - ALONE);
        wait(&tile.ready[second], turn / 2 % 2);
        fence_after_taking_over();
        if (shared <= 0) let_multiply(tile, second);
#pragma unroll 1
        for (int i = 0; i < pairs; i++) {
            const int pair = second ? i : pairs - 1 - i;
            const int first = neighbours ? 2 * pair : pair, other = neighbours ? 2 * pair + 1 : pairs + pair;
            float values[2][CHUNK] = {};
            load_32_columns(values[0], sums + first * CHUNK);
            if (other < chunks) load_32_columns(values[1], sums + other * CHUNK);
            wait_for_loads();
            if (i + 1 == min(shared, pairs)) let_multiply(tile, second);
            take(pair, values);
        }
        turn++;
    }

   private:
    __device__ __forceinline__ void let_multiply(Tile& tile, int second) const {
        fence_before_handing_over();
        __syncwarp();
        if (elected()) {
            if constexpr (Tile::CTAS == 1) arrive(&tile.drained[second]);
            if constexpr (Tile::CTAS > 1) arrive_in_cta(&tile.drained[second], 0);
        }
        __syncwarp();
    }
};

}  // namespace zoo
