// Plain <-> blocked, for scales of one byte.
//
// A tile of the blocked layout is 512 bytes: 32 lines of 16, line r of rows r, r + 32, r + 64, r + 96, four columns each.
// So 16 bytes of each of these four rows are line r of four tiles, transposed:
//
//                      tile 4c      4c + 1      4c + 2      4c + 3
//   row r        ->   word 0       word 0      word 0      word 0
//   row r + 32   ->   word 1       word 1      ...
//
// A unit is a tile high and 64 columns wide: four warps. The tiles of a row of tiles are neighbours, so a unit writes
// (or reads) 8 KB in one run.
#pragma once

#include <cstdint>

#include "common/dependent_launch.cuh"
#include "scales/row_tiles.cuh"
#include "scales/square.cuh"

namespace zoo {

constexpr int UNIT_COLUMNS = 64, UNIT_THREADS = 128;

struct Place {
    int64_t tile;    // a row of tiles
    int line;        // of 32
    int64_t column;  // the first of 16
};

template <int THREADS>
__device__ __forceinline__ Place place_of_thread(int64_t columns) {
    static_assert(THREADS % UNIT_THREADS == 0);
    const uint32_t across = (columns + UNIT_COLUMNS - 1) / UNIT_COLUMNS;
    const uint32_t unit = blockIdx.x * (THREADS / UNIT_THREADS) + threadIdx.x / UNIT_THREADS;
    const int thread = threadIdx.x % UNIT_THREADS;
    return {unit / across, thread / SQUARES_ACROSS, unit % across * int64_t(UNIT_COLUMNS) + thread % SQUARES_ACROSS * 16};
}

// Of a square's rows, how many exist: those among line, line + 32, line + 64, line + 96 that are below `count`.
__device__ __forceinline__ int64_t rows_of_line(int64_t count, int line) { return (count - line + 31) / 32; }

// Every byte of the `tiles` rows of tiles is written: with a scale, or with zero.
template <int THREADS, class Rows>
__device__ __forceinline__ void to_blocked(const Rows& rows, const uint8_t* scales, uint8_t* blocked, int64_t tiles,
                                           int64_t columns, int64_t stride) {
    let_next_kernel_launch();
    const Place place = place_of_thread<THREADS>(columns);
    wait_for_previous_kernel();
    const TileRows tile = rows.template of<THREADS>(place.tile);
    if (place.tile >= tiles) return;

    Square square;
    load_lines(square, scales + (tile.first + place.line) * stride + place.column, 32 * stride,
               rows_of_line(tile.count, place.line), columns - place.column, rows_are_aligned(scales, stride));
    transpose(square);
    const int64_t row_of_tiles = (columns + 3) / 4 * 512;
    uint8_t* line = blocked + place.tile * row_of_tiles + place.column / 4 * 512 + place.line * 16;
    const int64_t tiles_left = (columns + 3) / 4 - place.column / 4;
    store_lines(square, line, 512, tiles_left, 16, true);
}

template <int THREADS, class Rows>
__device__ __forceinline__ void from_blocked(const Rows& rows, const uint8_t* blocked, uint8_t* scales, int64_t columns,
                                             int64_t stride) {
    let_next_kernel_launch();
    const Place place = place_of_thread<THREADS>(columns);
    wait_for_previous_kernel();
    const TileRows tile = rows.template of<THREADS>(place.tile);
    const int64_t rows_left = rows_of_line(tile.count, place.line);
    if (rows_left <= 0) return;

    Square square;
    const int64_t row_of_tiles = (columns + 3) / 4 * 512;
    const uint8_t* line = blocked + place.tile * row_of_tiles + place.column / 4 * 512 + place.line * 16;
    const int64_t tiles_left = (columns + 3) / 4 - place.column / 4;
    load_lines(square, line, 512, tiles_left, 16, true);
    transpose(square);
    store_lines(square, scales + (tile.first + place.line) * stride + place.column, 32 * stride, rows_left,
                columns - place.column, rows_are_aligned(scales, stride));
}

}  // namespace zoo
