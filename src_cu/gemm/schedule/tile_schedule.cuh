// Schedules: which tiles of D a CTA computes, and in which sequence. This header is for one matrix, grouped_schedule.cuh for groups. All
// GEMMs on Hopper include it. Those on Blackwell use ceil_div() and BandedTile.
//
// next() of a schedule returns the CTA's next tile. Each role of a CTA (producer, math warps) walks through its own copy of the schedule.
// All lanes of a warp must call next() of a WARP_COLLECTIVE schedule together.
#pragma once

#include <concepts>
#include <cstdint>
#include <type_traits>

#include "common/cluster.cuh"

namespace zoo {

// A tile of D, and the K blocks that the CTA multiplies for it.
struct Work {
    int token, weight;  // the tile's first row and column of D
    int end_token;      // the tile has no rows from here on
    int group;          // which matrix of weights
    int first_block, end_block;
    int first_k = 0, end_k = 0;  // the group's columns of K, where groups divide K
};

template <class Schedule>
concept TileSchedule = requires(Schedule schedule, Work work) {
    { schedule.next(work) } -> std::same_as<bool>;
};
// Its next() may run before the previous kernel has ended.
template <class Schedule>
concept ReadsNoMemory = TileSchedule<Schedule> && requires { requires Schedule::READS_NO_MEMORY; };
template <class Schedule>
concept WarpCollective = requires { requires Schedule::WARP_COLLECTIVE; };

__device__ __forceinline__ int ceil_div(int extent, int tile) { return (extent + tile - 1) / tile; }

// How the rows of a matrix are cut into tiles of at most Tile::TOKENS rows.
//
//     300 rows    WholeTiles    | 0 ... 127 | 128 ... 255 | 256 ... 299 and 84 rows outside the tensor |
//                 EvenTiles     | 0 ... 99  | 100 ... 199 | 200 ... 299 |
//
// The copy engine needs 1.3 ns more for a row outside the tensor than for another row, in each K block (H200).
// EvenTiles avoid such rows, and the CTAs in the picture read a fifth less from L2.
template <class Tile>
struct WholeTiles {
    int M;

    __device__ __forceinline__ explicit WholeTiles(int M) : M(M) {}

    __device__ __forceinline__ int first(int tile) const { return tile * Tile::TOKENS; }
    __device__ __forceinline__ int end(int) const { return M; }
    __device__ __forceinline__ int box() const { return min(Tile::TOKENS, M); }  // rows of a tensor copy's box
};

// Tiles begin at multiples of four rows, so that copies of their scales begin at multiples of 16 bytes. The constructor makes the only division.
template <class Tile>
struct EvenTiles {
    static constexpr int MOST = 65536;  // rows: more would overflow 31 bits in first(), and then an uneven last tile costs little
    static constexpr int FRACTION = 12;
    static_assert(Tile::TOKENS % 4 == 0);

    int M, fours = 0;  // a tile's height in units of four rows, rounded up, with FRACTION fraction bits

    __device__ __forceinline__ explicit EvenTiles(int M) : M(M) {
        if (M > 0 && M <= MOST) fours = ceil_div(M << FRACTION, 4 * ceil_div(M, Tile::TOKENS));
    }

    __device__ __forceinline__ int first(int tile) const {
        return M > MOST ? tile * Tile::TOKENS : (tile * fours + (1 << FRACTION) - 1 >> FRACTION) * 4;
    }
    __device__ __forceinline__ int end(int tile) const { return min(M, first(tile + 1)); }
    __device__ __forceinline__ int box() const { return min(M, first(1)); }
};

// Tiles of less than 96 tokens are used for few tokens, which seldom fill several tiles.
template <class Tile, int TOKENS>
using RowTiles = std::conditional_t<(TOKENS >= 96), EvenTiles<Tile>, WholeTiles<Tile>>;

// The row and column of tile `index` in a matrix of rows x columns tiles. Indices run down a band of BAND rows, then along the columns:
// concurrent CTAs compute a near-square patch of D, whose operands stay in L2.
template <int BAND>
struct BandedTile {
    int row, column;

    __device__ __forceinline__ BandedTile(int index, int rows, int columns) {
        const int band = index / (BAND * columns), within = index % (BAND * columns);
        const int height = min(BAND, rows - band * BAND);
        column = within / height;
        row = band * BAND + within - column * height;
    }
};

// One matrix, persistent CTAs.
template <class Tile, int BAND, class Rows = WholeTiles<Tile>>
struct DenseSchedule {
    static constexpr bool READS_NO_MEMORY = true;
    Rows cut;
    int rows, columns, blocks;  // tiles down and along D; K blocks
    int index = blockIdx.x;

    __device__ __forceinline__ DenseSchedule(int M, int N, int blocks)
        : cut(M), rows(ceil_div(M, Tile::TOKENS)), columns(ceil_div(N, Tile::WEIGHTS)), blocks(blocks) {}

    __device__ __forceinline__ bool next(Work& work) {
        if (index >= rows * columns) return false;
        const BandedTile<BAND> tile(index, rows, columns);
        work = {cut.first(tile.row), tile.column * Tile::WEIGHTS, cut.end(tile.row), 0, 0, blocks};
        index += gridDim.x;
        return true;
    }
};

// One matrix, one tile for each cluster, whose SPLITS CTAs each multiply a share of the K blocks.
template <class Tile, int SPLITS, class Rows = WholeTiles<Tile>>
struct SplitKSchedule {
    Work work;
    int columns, blocks;
    bool given = false;

    __device__ __forceinline__ SplitKSchedule(int M, int N, int blocks) : columns(ceil_div(N, Tile::WEIGHTS)), blocks(blocks) {
        const int index = blockIdx.x / SPLITS;
        const int split = SPLITS > 1 ? cluster_rank() : 0;
        const Rows cut(M);
        work = {cut.first(index / columns),
                index % columns * Tile::WEIGHTS,
                cut.end(index / columns),
                0,
                int(int64_t(blocks) * split / SPLITS),
                int(int64_t(blocks) * (split + 1) / SPLITS)};
    }

    __device__ __forceinline__ bool next(Work& result) {
        if (given) return false;
        result = work;
        return given = true;
    }
};

}  // namespace zoo
