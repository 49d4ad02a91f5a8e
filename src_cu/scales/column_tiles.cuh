// Plain <-> blocked for scales of one byte whose groups lie along the columns, as weight gradients have them.
//
// A row of the plain scales holds the scales of every group, ceil(size / block) of them, one after the other. Blocked, every
// group is a matrix of its own, one after the other in memory: so a tile never holds two groups.
//
//   plain, a row          | g0: 0 1 2 3 4 | g1: 0 1 2 | g2: 0 1 2 3 4 5 ...
//   columns of tiles      | 0       | 1   | 2         | 3       | 4     ...
//
// Groups start at any byte, so nothing is aligned on the plain side. A CTA takes COLUMN_TILES columns of tiles, which are one
// run of plain columns whatever the groups, and several rows of tiles. A thread's lines are all of one column of tiles.
#pragma once

#include <cstdint>

#include "common/dependent_launch.cuh"
#include "common/global_memory.cuh"

namespace zoo {

constexpr int COLUMN_TILES = 16, RUN = 4 * COLUMN_TILES;  // RUN: plain columns, at most
constexpr int PITCH = RUN + 4;                            // of a row in shared memory, which starts up to 3 bytes in

// A column of tiles: tile `first + r * across` lies in the r-th row of tiles, and holds `count` plain columns.
struct ColumnTile {
    int64_t first;
    int32_t across, column, count;
};

struct ColumnGroups {
    const int32_t* offsets;  // in elements
    int32_t groups, block;   // elements a scale

    // Describes the CTA's columns of tiles. Those that no group reaches have no columns and follow the last group in memory.
    // Returns how many plain columns all groups have.
    template <int THREADS>
    __device__ __forceinline__ int32_t find(ColumnTile (&found)[COLUMN_TILES], int64_t first_tile, int64_t row_tiles) const {
        __shared__ int32_t tile_ends[THREADS], column_ends[THREADS], warp_tiles[THREADS / 32], warp_columns[THREADS / 32];
        const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
        const int64_t tile = first_tile + threadIdx.x;
        int32_t tiles_before = 0, columns_before = 0;  // of earlier rounds
        ColumnTile own = {row_tiles * tile, 1, -1, 0};
        for (int32_t round = 0; round < groups; round += THREADS) {
            const int32_t group = round + static_cast<int32_t>(threadIdx.x);
            int32_t columns = 0;
            if (group < groups) columns = (offsets[group] - (group ? offsets[group - 1] : 0) + block - 1) / block;
            int32_t tile_end = (columns + 3) / 4, column_end = columns;
#pragma unroll
            for (int distance = 1; distance < 32; distance *= 2) {
                const int32_t tiles = __shfl_up_sync(0xFFFFFFFF, tile_end, distance);
                const int32_t others = __shfl_up_sync(0xFFFFFFFF, column_end, distance);
                if (lane >= distance) tile_end += tiles, column_end += others;
            }
            if (lane == 31) warp_tiles[warp] = tile_end, warp_columns[warp] = column_end;
            __syncthreads();
            tile_end += tiles_before, column_end += columns_before;
#pragma unroll
            for (int i = 0; i < THREADS / 32; i++) {
                if (i < warp) tile_end += warp_tiles[i], column_end += warp_columns[i];
                tiles_before += warp_tiles[i], columns_before += warp_columns[i];
            }
            tile_ends[threadIdx.x] = tile_end, column_ends[threadIdx.x] = column_end;
            __syncthreads();
            if (own.column < 0 && tile < tiles_before && threadIdx.x < COLUMN_TILES) {
                int32_t group_found = 0;  // the first that ends after the tile
#pragma unroll
                for (int step = THREADS / 2; step > 0; step /= 2)
                    if (tile_ends[group_found + step - 1] <= tile) group_found += step;
                const int32_t size = offsets[round + group_found] - (round + group_found ? offsets[round + group_found - 1] : 0);
                const int32_t count = (size + block - 1) / block, across = (count + 3) / 4;
                // Tiles of the group before it.
                const int32_t inside = across - (tile_ends[group_found] - static_cast<int32_t>(tile));
                own.first = row_tiles * (tile - inside) + inside;
                own.across = across;
                own.column = column_ends[group_found] - count + 4 * inside;
                own.count = min(count - 4 * inside, 4);
            }
            __syncthreads();
        }
        if (own.column < 0) own.column = columns_before;
        if (threadIdx.x < COLUMN_TILES) found[threadIdx.x] = own;
        __syncthreads();
        return columns_before;
    }
};

// Which lines a thread has: two neighbouring ones of a tile lie in a warp, a whole sector.
template <int THREADS>
struct OwnLines {
    static constexpr int COUNT = 32 * COLUMN_TILES / THREADS;
    static constexpr int STEP = THREADS / COLUMN_TILES;

    static __device__ __forceinline__ int tile() { return threadIdx.x / 2 % COLUMN_TILES; }
    static __device__ __forceinline__ int line(int i) {
        return threadIdx.x / (2 * COLUMN_TILES) * 2 + threadIdx.x % 2 + i * STEP;
    }
};

// Up to four bytes that follow each other, from the one or two words that hold them.
struct FourBytes {
    uint32_t low, high;
    bool whole;  // whether these words lie in [begin, end): what is outside is not ours to read

    __device__ __forceinline__ FourBytes(const uint8_t* first, int count, const uint8_t* begin, const uint8_t* end) {
        const int offset = reinterpret_cast<uintptr_t>(first) % 4;
        const uint8_t* word = first - offset;
        const bool two = offset + count > 4;
        whole = count > 0 && word >= begin && word + (two ? 8 : 4) <= end;
        low = high = 0;
        if (whole) low = *reinterpret_cast<const uint32_t*>(word);
        if (whole && two) high = *reinterpret_cast<const uint32_t*>(word + 4);
    }

    // The first byte lowest, zeros after the last.
    __device__ __forceinline__ uint32_t get(const uint8_t* first, int count) const {
        if (whole) {
            const uint32_t bytes = __funnelshift_r(low, high, reinterpret_cast<uintptr_t>(first) % 4 * 8);
            return count == 4 ? bytes : bytes & ((1u << 8 * count) - 1);
        }
        uint32_t bytes = 0;
#pragma unroll 1
        for (int b = count - 1; b >= 0; b--) bytes = bytes << 8 | first[b];
        return bytes;
    }
};

// All `column_tiles` are written, with scales or with zero.
template <int THREADS>
__device__ __forceinline__ void columns_to_blocked(const ColumnGroups& groups, const uint8_t* scales, uint8_t* blocked,
                                                   int64_t rows, int64_t column_tiles, int64_t stride) {
    using Own = OwnLines<THREADS>;
    __shared__ ColumnTile tiles[COLUMN_TILES];
    let_next_kernel_launch();
    const int64_t row_tiles = (rows + 127) / 128, first_tile = int64_t(blockIdx.x) * COLUMN_TILES;
    wait_for_previous_kernel();
    const int32_t used = groups.find<THREADS>(tiles, first_tile, row_tiles);
    const ColumnTile tile = tiles[Own::tile()];
    if (first_tile + Own::tile() >= column_tiles) return;
    for (int64_t r = blockIdx.y; r < row_tiles; r += gridDim.y) {
#pragma unroll
        for (int k = 0; k < Own::COUNT; k++) {
            const int64_t row = r * 128 + Own::line(k);
            const uint8_t* begin = scales + row * stride;
            const int64_t step = 32 * stride;
            auto count_of = [&](int i) { return row + 32 * i < rows ? tile.count : 0; };
            auto bytes_of = [&](int i) {
                return FourBytes(begin + i * step + tile.column, count_of(i), begin + i * step, begin + i * step + used);
            };
            const FourBytes bytes[4] = {bytes_of(0), bytes_of(1), bytes_of(2), bytes_of(3)};
            uint32_t line[4];
#pragma unroll
            for (int i = 0; i < 4; i++) line[i] = bytes[i].get(begin + i * step + tile.column, count_of(i));
            store_16_bytes(blocked + (tile.first + r * tile.across) * 512 + Own::line(k) * 16, line);
        }
    }
}

// Bytes meet in shared memory: row by row, each as far into its first word as in the plain scales.
template <int THREADS>
__device__ __forceinline__ void columns_from_blocked(const ColumnGroups& groups, const uint8_t* blocked, uint8_t* scales,
                                                     int64_t rows, int64_t stride) {
    using Own = OwnLines<THREADS>;
    constexpr int ROW_LANES = 16, ROWS_AT_ONCE = THREADS / ROW_LANES;
    __shared__ ColumnTile tiles[COLUMN_TILES];
    __shared__ uint32_t words_of_rows[128][PITCH / 4];
    let_next_kernel_launch();
    const int64_t row_tiles = (rows + 127) / 128, first_tile = int64_t(blockIdx.x) * COLUMN_TILES;
    wait_for_previous_kernel();
    groups.find<THREADS>(tiles, first_tile, row_tiles);
    const ColumnTile tile = tiles[Own::tile()], last = tiles[COLUMN_TILES - 1];
    const int first = tiles[0].column, columns = last.column + last.count - first;
    if (columns == 0) return;
    for (int64_t r = blockIdx.y; r < row_tiles; r += gridDim.y) {
        uint8_t* run = scales + r * 128 * stride + first;  // of the turn's first row
        auto offset_of = [&](int row) { return int(reinterpret_cast<uintptr_t>(run + row * stride) % 4); };
        uint4 loaded[Own::COUNT];
#pragma unroll
        for (int k = 0; k < Own::COUNT; k++)
            if (tile.count > 0) loaded[k] = load_16_bytes(blocked + (tile.first + r * tile.across) * 512 + Own::line(k) * 16);
        __syncthreads();  // the turn before is done with the words
#pragma unroll
        for (int k = 0; k < Own::COUNT; k++) {
            const uint32_t line[4] = {loaded[k].x, loaded[k].y, loaded[k].z, loaded[k].w};
#pragma unroll
            for (int i = 0; i < 4; i++) {
                const int row = Own::line(k) + 32 * i;
                uint8_t* target = reinterpret_cast<uint8_t*>(words_of_rows[row]) + offset_of(row) + tile.column - first;
#pragma unroll
                for (int b = 0; b < 4; b++)
                    if (b < tile.count) target[b] = line[i] >> 8 * b;
            }
        }
        __syncthreads();
        const int rows_left = min(rows - r * 128, int64_t(128));
#pragma unroll
        for (int i = 0; i < 128 / ROWS_AT_ONCE; i++) {
            const int row = threadIdx.x / ROW_LANES + i * ROWS_AT_ONCE, offset = offset_of(row);
#pragma unroll
            for (int w = threadIdx.x % ROW_LANES; w < PITCH / 4; w += ROW_LANES) {
                const int byte = 4 * w - offset;  // the word's first, in the run
                if (row >= rows_left || byte >= columns) continue;
                uint8_t* target = run + row * stride + byte;
                if (byte >= 0 && byte + 4 <= columns) {
                    *reinterpret_cast<uint32_t*>(target) = words_of_rows[row][w];
                } else {  // the run's first or last bytes
                    const uint8_t* bytes = reinterpret_cast<const uint8_t*>(&words_of_rows[row][w]);
#pragma unroll 1
                    for (int b = max(-byte, 0); b < min(columns - byte, 4); b++) target[b] = bytes[b];
                }
            }
        }
    }
}

}  // namespace zoo
