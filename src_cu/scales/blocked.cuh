// Scales of one byte, plain to blocked and back. Kernels scales.blocked and scales.unblocked use it, for one matrix or for groups of rows.
//
// A tile of the blocked layout has 512 bytes: 32 lines of 16 bytes. Line r holds rows r, r + 32, r + 64 and r + 96, four columns each.
// So 16 bytes of each of these four rows are line r of four tiles, transposed:
//
//                      tile 4c      4c + 1      4c + 2      4c + 3
//   row r        ->   word 0       word 0      word 0      word 0
//   row r + 32   ->   word 1       word 1      ...
//
// A unit is one tile high and 64 columns wide, and four warps process it. Tiles of a row of tiles are neighbours in memory, so a unit
// writes (or reads) 8 KB in one run.
#pragma once

#include <cstdint>

#include "common/dependent_launch.cuh"
#include "scales/row_tiles.cuh"
#include "scales/square.cuh"

namespace zoo {

constexpr int UNIT_COLUMNS = 64, UNIT_THREADS = 128;

// The square of a thread.
struct LinePosition {
    int64_t tile;    // index of the row of tiles
    int line;        // 0 to 31
    int64_t column;  // first of 16 columns
};

template <int THREADS>
__device__ __forceinline__ LinePosition position_of_thread(int64_t columns) {
    static_assert(THREADS % UNIT_THREADS == 0);
    const uint32_t across = (columns + UNIT_COLUMNS - 1) / UNIT_COLUMNS;
    const uint32_t unit = blockIdx.x * (THREADS / UNIT_THREADS) + threadIdx.x / UNIT_THREADS;
    const int thread = threadIdx.x % UNIT_THREADS;
    return {unit / across, thread / SQUARES_ACROSS, unit % across * int64_t(UNIT_COLUMNS) + thread % SQUARES_ACROSS * 16};
}

// How many rows of a square exist: rows line, line + 32, line + 64 and line + 96 that are below `count`.
__device__ __forceinline__ int64_t rows_of_line(int64_t count, int line) { return (count - line + 31) / 32; }

// Writes every byte of `tiles` rows of tiles: a scale, or zero for padding.
template <int THREADS, class Rows>
__device__ __forceinline__ void to_blocked(const Rows& rows, const uint8_t* scales, uint8_t* blocked, int64_t tiles,
                                           int64_t columns, int64_t stride) {
    let_next_kernel_launch();
    const LinePosition at = position_of_thread<THREADS>(columns);
    wait_for_previous_kernel();
    const TileRows tile = rows.template of<THREADS>(at.tile);
    if (at.tile >= tiles) return;

    Square square;
    load_lines(square, scales + (tile.first + at.line) * stride + at.column, 32 * stride, rows_of_line(tile.count, at.line),
               columns - at.column, rows_are_aligned(scales, stride));
    transpose(square);
    const int64_t row_of_tiles = (columns + 3) / 4 * 512;
    uint8_t* line = blocked + at.tile * row_of_tiles + at.column / 4 * 512 + at.line * 16;
    const int64_t tiles_left = (columns + 3) / 4 - at.column / 4;
    store_lines(square, line, 512, tiles_left, 16, true);
}

template <int THREADS, class Rows>
__device__ __forceinline__ void from_blocked(const Rows& rows, const uint8_t* blocked, uint8_t* scales, int64_t columns,
                                             int64_t stride) {
    let_next_kernel_launch();
    const LinePosition at = position_of_thread<THREADS>(columns);
    wait_for_previous_kernel();
    const TileRows tile = rows.template of<THREADS>(at.tile);
    const int64_t rows_left = rows_of_line(tile.count, at.line);
    if (rows_left <= 0) return;

    Square square;
    const int64_t row_of_tiles = (columns + 3) / 4 * 512;
    const uint8_t* line = blocked + at.tile * row_of_tiles + at.column / 4 * 512 + at.line * 16;
    const int64_t tiles_left = (columns + 3) / 4 - at.column / 4;
    load_lines(square, line, 512, tiles_left, 16, true);
    transpose(square);
    store_lines(square, scales + (tile.first + at.line) * stride + at.column, 32 * stride, rows_left, columns - at.column,
                rows_are_aligned(scales, stride));
}

}  // namespace zoo
