// Which tiles of D a CTA computes, and in which order. An order's next() gives one after the other; every role of a CTA has
// a copy of its own. An order OF_WARPS has its next() called by all lanes of a warp at once.
#pragma once

#include <concepts>
#include <cstdint>
#include <type_traits>

#include "common/cluster.cuh"
#include "common/warp.cuh"

namespace zoo {

// Some blocks of K of one tile of D.
struct Work {
    int token, weight;  // the tile's first row and column
    int end_token;      // rows from here on are not the tile's
    int group;          // which of several matrices of weights
    int first_block, end_block;
    int first_row = 0, end_row = 0;  // of K, where groups lie along it
};

template <class Order>
concept TileOrder = requires(Order order, Work work) {
    { order.next(work) } -> std::same_as<bool>;
};
// Whose next() may be called before the kernel ahead has ended.
template <class Order>
concept ReadsNothing = TileOrder<Order> && requires { requires Order::READS_NOTHING; };
template <class Order>
concept OfWarps = requires { requires Order::OF_WARPS; };

__device__ __forceinline__ int tiles_of(int extent, int tile) { return (extent + tile - 1) / tile; }

// How the rows of one matrix are cut into tiles that have room for Tile::TOKENS each.
//
//     300 rows    WholeTiles    | 0 ... 127 | 128 ... 255 | 256 ... 299 and 84 rows outside the tensor |
//                 EvenTiles     | 0 ... 99  | 100 ... 199 | 200 ... 299 |
//
// A row of a box outside the tensor takes the copy engine 1.3 ns longer than others, for each block of K; and here all CTAs together read a
// fifth less from L2.
template <class Tile>
struct WholeTiles {
    int M;

    __device__ __forceinline__ explicit WholeTiles(int M) : M(M) {}

    __device__ __forceinline__ int first(int tile) const { return tile * Tile::TOKENS; }
    __device__ __forceinline__ int end(int) const { return M; }
    __device__ __forceinline__ int box() const { return min(Tile::TOKENS, M); }  // so many rows does a box have
};

// All about as high. They begin at multiples of four rows, so that a copy of scales begins at 16 bytes. A division is made once, for all.
template <class Tile>
struct EvenTiles {
    static constexpr int MOST = 65536;  // rows: a product below has 31 bits. Beyond, the last of so many tiles does not matter
    static constexpr int FRACTION = 12;
    static_assert(Tile::TOKENS % 4 == 0);

    int M, fours = 0;  // four rows each, of a tile, with so many bits of fraction, rounded up

    __device__ __forceinline__ explicit EvenTiles(int M) : M(M) {
        if (M > 0 && M <= MOST) fours = tiles_of(M << FRACTION, 4 * tiles_of(M, Tile::TOKENS));
    }

    __device__ __forceinline__ int first(int tile) const {
        return M > MOST ? tile * Tile::TOKENS : (tile * fours + (1 << FRACTION) - 1 >> FRACTION) * 4;
    }
    __device__ __forceinline__ int end(int tile) const { return min(M, first(tile + 1)); }
    __device__ __forceinline__ int box() const { return min(M, first(1)); }
};

// Of fewer than 96 tokens at a time a call hardly ever has several tiles.
template <class Tile, int TOKENS>
using FewOrEvenTiles = std::conditional_t<(TOKENS >= 96), EvenTiles<Tile>, WholeTiles<Tile>>;

// Tile `index` of a matrix of rows x columns tiles: down a band of BAND rows first, then along the columns, so that those
// which run at the same time form a near-square patch of D, and what they read stays in L2.
template <int BAND>
struct Banded {
    int row, column;

    __device__ __forceinline__ Banded(int index, int rows, int columns) {
        const int band = index / (BAND * columns), within = index % (BAND * columns);
        const int height = min(BAND, rows - band * BAND);
        column = within / height;
        row = band * BAND + within - column * height;
    }
};

// Persistent CTAs, one matrix.
template <class Tile, int BAND, class Rows = WholeTiles<Tile>>
struct DenseOrder {
    static constexpr bool READS_NOTHING = true;  // from memory
    Rows cut;
    int rows, columns, blocks;  // tiles down and along; blocks of K
    int index = blockIdx.x;

    __device__ __forceinline__ DenseOrder(int M, int N, int blocks)
        : cut(M), rows(tiles_of(M, Tile::TOKENS)), columns(tiles_of(N, Tile::WEIGHTS)), blocks(blocks) {}

    __device__ __forceinline__ bool next(Work& work) {
        if (index >= rows * columns) return false;
        const Banded<BAND> place(index, rows, columns);
        work = {cut.first(place.row), place.column * Tile::WEIGHTS, cut.end(place.row), 0, 0, blocks};
        index += gridDim.x;
        return true;
    }
};

// One tile for a cluster of SPLITS CTAs, which share the blocks of K.
template <class Tile, int SPLITS, class Rows = WholeTiles<Tile>>
struct SplitOrder {
    Work work;
    int columns, blocks;
    bool given = false;

    // Of a share of K.
    __device__ __forceinline__ int blocks_of(int split) const {
        return int(int64_t(blocks) * (split + 1) / SPLITS) - int(int64_t(blocks) * split / SPLITS);
    }

    __device__ __forceinline__ SplitOrder(int M, int N, int blocks) : columns(tiles_of(N, Tile::WEIGHTS)), blocks(blocks) {
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

// Where a group's rows of A lie, known on the device only.
struct OneAfterTheOther {
    const int* ends;
    __device__ __forceinline__ void find(int group, int& begin, int& end) const {
        begin = group > 0 ? ends[group - 1] : 0;
        end = ends[group];
    }
};

struct EachInItsPlace {
    const int* used;
    int rows;  // of a place
    __device__ __forceinline__ void find(int group, int& begin, int& end) const {
        begin = group * rows;
        end = begin + used[group];
    }
};

// Persistent CTAs, a matrix of weights for each group. Tiles begin where groups begin, so each CTA walks along the groups, 32 in
// a step: every lane has one of them.
template <class Tile, int BAND, class Groups>
struct GroupedOrder {
    static constexpr bool OF_WARPS = true;
    static constexpr uint32_t ALL = 0xFFFFFFFF;

    Groups groups;
    int count, columns, blocks;
    int index = blockIdx.x;
    int first_group = -32, end_index = 0;       // of the 32 groups; their tiles end there
    int begin = 0, end = 0, own_end_index = 0;  // the rows of this lane's group; its tiles end there

    __device__ __forceinline__ GroupedOrder(Groups groups, int count, int N, int blocks)
        : groups(groups), count(count), columns(tiles_of(N, Tile::WEIGHTS)), blocks(blocks) {}

    __device__ __forceinline__ bool next(Work& work) {
        while (index >= end_index) {
            first_group += 32;
            if (first_group >= count) return false;
            const int group = first_group + threadIdx.x % 32;
            begin = end = 0;
            if (group < count) groups.find(group, begin, end);
            own_end_index = end_index + sum_of_lanes_up_to_this(tiles_of(end - begin, Tile::TOKENS) * columns);
            end_index = __shfl_sync(ALL, own_end_index, 31);
        }
        const int owner = __ffs(__ballot_sync(ALL, index < own_end_index)) - 1;  // the first whose tiles end after this one
        const int first_row = __shfl_sync(ALL, begin, owner), end_row = __shfl_sync(ALL, end, owner);
        const int rows = tiles_of(end_row - first_row, Tile::TOKENS);  // of tiles
        const int first_index = __shfl_sync(ALL, own_end_index, owner) - rows * columns;
        const Banded<BAND> place(index - first_index, rows, columns);
        work = {first_row + place.row * Tile::TOKENS, place.column * Tile::WEIGHTS, end_row, first_group + owner, 0, blocks};
        index += gridDim.x;
        return true;
    }
};

// Persistent CTAs, rows that say which group they are of, or -1; those of a group lie together. A tile of rows takes as many turns
// as it has groups: one, but where a group ends within it. So nobody walks along the groups, however many they are.
template <class Tile, int BAND>
struct IndexedOrder {
    const int* group_of;
    int M, rows, columns, blocks;  // tiles down and along; blocks of K
    int index = blockIdx.x;
    int row = 0, end = 0, column = 0;  // what is left of a tile

    __device__ __forceinline__ IndexedOrder(const int* group_of, int M, int N, int blocks)
        : group_of(group_of), M(M), rows(tiles_of(M, Tile::TOKENS)), columns(tiles_of(N, Tile::WEIGHTS)), blocks(blocks) {}

    __device__ __forceinline__ bool next(Work& work) {
        skip_rows_of_nobody();
        while (row == end) {
            if (index >= rows * columns) return false;
            const Banded<BAND> place(index, rows, columns);
            row = place.row * Tile::TOKENS;
            end = min(row + Tile::TOKENS, M);
            column = place.column * Tile::WEIGHTS;
            index += gridDim.x;
            skip_rows_of_nobody();
        }
        const int group = group_of[row], group_end = end_of(group);
        work = {row, column, group_end, group, 0, blocks};
        row = group_end;
        return true;
    }

   private:
    __device__ __forceinline__ void skip_rows_of_nobody() {
#pragma unroll 8
        for (; row < end && group_of[row] < 0; row++);
    }

    // The row after the group's last, or the tile's end.
    __device__ __forceinline__ int end_of(int group) const {
        if (group_of[end - 1] == group) return end;
        int inside = row, outside = end - 1;
        while (outside - inside > 1) {
            const int middle = (inside + outside) / 2;
            (group_of[middle] == group ? inside : outside) = middle;
        }
        return outside;
    }
};

}  // namespace zoo
