// Scales of one byte, plain to blocked and back, for groups along the columns, as weight gradients have them. Kernels
// scales.blocked.k_grouped and scales.unblocked.k_grouped use it.
//
// A row of the plain scales holds ceil(size / block) scales of each group, one group after the other. In the blocked layout every group is
// a matrix of its own, one group after the other in memory. So a tile never holds two groups.
//
//   plain, a row          | g0: 0 1 2 3 4 | g1: 0 1 2 | g2: 0 1 2 3 4 5 ...
//   columns of tiles      | 0       | 1   | 2         | 3       | 4     ...
//
// A group starts at any byte, so 16 aligned bytes of a plain row and 16 aligned bytes of a tile hold different columns. A CTA takes TILES
// columns of tiles, which are one run of plain columns for any groups, and one row of tiles at a time. It copies whole aligned 16 bytes of
// the source to shared memory. From words of shared memory it assembles whole 16 bytes of the target.
#pragma once

#include <cstdint>

#include "common/async_copy.cuh"
#include "common/dependent_launch.cuh"
#include "common/global_memory.cuh"

namespace zoo {

// A column of tiles. Its tile in row r of tiles is number first + r * across. It holds `count` plain columns from `column` on.
struct ColumnTile {
    int64_t first;
    int32_t across, column, count;
};

struct ColumnGroups {
    const int32_t* offsets;  // ends of the groups, in elements
    int32_t groups, block;   // block: elements that share a scale

    // ceil(elements / block), in unsigned numbers because both may be near 2^31. A block is usually a power of two; a shift avoids the
    // latency of a division.
    __device__ __forceinline__ int32_t scales_of(uint32_t elements) const {
        const uint32_t up = elements + uint32_t(block) - 1;
        return (block & block - 1) == 0 ? up >> __ffs(block) - 1 : up / block;
    }

    // Describes the CTA's columns of tiles, and returns the number of plain columns of all groups. Columns of tiles beyond the last group
    // hold no plain columns and follow the last group in memory.
    // The first warp computes it. Each lane sums a 32nd of the groups, and a scan adds up the lanes. Then each lane takes one tile, finds
    // the lane whose groups include the tile, and searches these groups.
    template <int TILES>
    __device__ __forceinline__ int32_t find(ColumnTile (&found)[TILES], int64_t first_tile, int64_t row_tiles) const {
        __shared__ int32_t columns_of_all;
        if (threadIdx.x < 32) {
            const int lane = threadIdx.x, own = (groups + 31) / 32;
            const int first = min(lane * own, groups), last = min(first + own, groups) - 1;
            const int32_t end = offsets[last], end_before = __shfl_up_sync(0xFFFFFFFF, end, 1), start = lane ? end_before : 0;
            int32_t tiles = 0, columns = 0;
#pragma unroll 1
            for (int32_t group = first, from = start; group <= max(first, last); group++) {
                const int32_t to = group < last ? offsets[group] : end, count = scales_of(to - from);
                tiles += (count + 3) / 4, columns += count, from = to;
            }
            int32_t tile_end = tiles, column_end = columns;
#pragma unroll
            for (int distance = 1; distance < 32; distance *= 2) {
                const int32_t more_tiles = __shfl_up_sync(0xFFFFFFFF, tile_end, distance);
                const int32_t more_columns = __shfl_up_sync(0xFFFFFFFF, column_end, distance);
                if (lane >= distance) tile_end += more_tiles, column_end += more_columns;
            }
            auto of = [](int32_t value, int owner) { return __shfl_sync(0xFFFFFFFF, value, owner); };
            const int32_t all_tiles = of(tile_end, 31), all_columns = of(column_end, 31);
            if (lane == 0) columns_of_all = all_columns;
#pragma unroll 1
            for (int t = lane; t < (TILES + 31) / 32 * 32; t += 32) {
                const int64_t tile = first_tile + t;
                int owner = 0;  // first lane whose groups end after the tile
#pragma unroll
                for (int step = 16; step > 0; step /= 2)
                    if (of(tile_end, owner + step - 1) <= tile) owner += step;
                int32_t group = of(first, owner), from = of(start, owner);
                int32_t tiles_before = of(tile_end - tiles, owner), columns_before = of(column_end - columns, owner);
                const int32_t last_group = of(last, owner), last_end = of(end, owner);
                ColumnTile description = {row_tiles * tile, 1, all_columns, 0};
                if (tile < all_tiles) {
#pragma unroll 1
                    for (;; group++) {
                        const int32_t to = group < last_group ? offsets[group] : last_end, count = scales_of(to - from);
                        const int32_t across = (count + 3) / 4, inside = int32_t(tile) - tiles_before;
                        if (inside < across) {
                            description = {row_tiles * tiles_before + inside, across, columns_before + 4 * inside,
                                           min(count - 4 * inside, 4)};
                            break;
                        }
                        tiles_before += across, columns_before += count, from = to;
                    }
                }
                if (t < TILES) found[t] = description;
            }
        }
        __syncthreads();
        return columns_of_all;
    }
};

// Writes all `column_tiles`, with scales or with zero. Shared memory holds rows of plain scales. Each row keeps its offset from a multiple
// of 16 bytes. A warp assembles 8 lines of 4 tiles: it reads words of 32 banks and stores 128 bytes of each tile.
template <int THREADS, int TILES>
__device__ __forceinline__ void columns_to_blocked(const ColumnGroups& groups, const uint8_t* scales, uint8_t* blocked,
                                                   int64_t rows, int64_t column_tiles, int64_t stride) {
    constexpr int CHUNKS = TILES / 4, PITCH = 16 * (CHUNKS + 1);
    static_assert(PITCH / 4 % 8 == 4 && TILES * 8 % THREADS == 0);
    __shared__ ColumnTile tiles[TILES];
    __shared__ __align__(16) uint8_t plain[128 * PITCH];
    let_next_kernel_launch();
    const int64_t row_tiles = (rows + 127) / 128, first_tile = int64_t(blockIdx.x) * TILES;
    wait_for_previous_kernel();
    const int32_t used = groups.find<TILES>(tiles, first_tile, row_tiles);
    const int32_t first = tiles[0].column, columns = tiles[TILES - 1].column + tiles[TILES - 1].count - first;
    for (int64_t r = blockIdx.y; r < row_tiles; r += gridDim.y) {  // more than once only beyond the largest grid
        const uint8_t* run = scales + r * 128 * stride + first;    // the run in the first row
        const int rows_here = min(rows - r * 128, int64_t(128));
        auto phase_of = [&](int row) { return (uint32_t(reinterpret_cast<uintptr_t>(run)) + row * uint32_t(stride)) % 16; };
#pragma unroll
        for (int i = 0; i < (128 * (CHUNKS + 1) + THREADS - 1) / THREADS; i++) {
            const int cell = threadIdx.x + i * THREADS, row = cell / (CHUNKS + 1), chunk = cell % (CHUNKS + 1);
            if (row >= 128) break;
            const int at = chunk * 16 - int(phase_of(row));  // offset in the run
            const bool exists = row < rows_here && at < columns;
            const uint8_t* source = run + row * stride + at;
            uint8_t* target = plain + cell * 16;
            if (!exists || first + at >= 0 && first + at + 16 <= used) {
                copy_16_bytes(shared_address(target), exists ? source : blocked, exists);
            } else {  // first or last bytes of a row: bytes beside the row may not be read
#pragma unroll 1
                for (int b = 0; b < 16; b++) target[b] = first + at + b >= 0 && first + at + b < used ? source[b] : 0;
            }
        }
        wait_for_copies();
        __syncthreads();
        const int lane = threadIdx.x % 32;
#pragma unroll 1
        for (int t = threadIdx.x / 32 * 4 + lane / 8; t < TILES; t += THREADS / 8) {
            if (first_tile + t >= column_tiles) break;
            const ColumnTile tile = tiles[t];
            uint8_t* target = blocked + (tile.first + r * tile.across) * 512;
            const uint32_t mask = tile.count == 4 ? 0xFFFFFFFF : (1u << 8 * tile.count) - 1;
#pragma unroll
            for (int first_line = 0; first_line < 32; first_line += 8) {
                uint32_t line[4];
#pragma unroll
                for (int i = 0; i < 4; i++) {
                    const int row = first_line + lane % 8 + 32 * i, byte = phase_of(row) + tile.column - first;
                    const uint32_t* word = reinterpret_cast<const uint32_t*>(plain + row * PITCH) + byte / 4;
                    line[i] = __funnelshift_r(word[0], word[1], byte % 4 * 8) & mask;
                }
                store_16_bytes(target + (first_line + lane % 8) * 16, line);
            }
        }
        __syncthreads();  // before the next row of tiles overwrites shared memory
    }
}

// Shared memory holds tiles. Their lines are rotated by one line every 4 tiles, against bank conflicts. The CTA in whose run 16 aligned
// bytes of a row begin stores them. So a CTA also copies the tiles of the next 15 columns. A warp assembles 8 times 16 bytes of rows l,
// l + 32, l + 64 and l + 96: it reads words of 32 banks and stores 128 bytes of each row.
template <int THREADS, int TILES>
__device__ __forceinline__ void columns_from_blocked(const ColumnGroups& groups, const uint8_t* blocked, uint8_t* scales,
                                                     int64_t rows, int64_t stride) {
    constexpr int WARPS = THREADS / 32, BEHIND = 15, ALL_TILES = TILES + BEHIND, CHUNKS = TILES / 4, RUN = 4 * TILES;
    static_assert(CHUNKS % 8 == 0);
    __shared__ ColumnTile tiles[ALL_TILES];
    __shared__ uint16_t positions[RUN + BEHIND];  // position of a column in the words of a row: 4 * tile + byte
    __shared__ __align__(16) uint8_t staged[ALL_TILES * 512];
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    let_next_kernel_launch();
    const int64_t row_tiles = (rows + 127) / 128, first_tile = int64_t(blockIdx.x) * TILES;
    wait_for_previous_kernel();
    const int32_t used = groups.find<ALL_TILES>(tiles, first_tile, row_tiles);
    const int first = tiles[0].column, columns = tiles[TILES - 1].column + tiles[TILES - 1].count - first;
    if (columns == 0) return;
    const int left = used - first, known = min(columns + BEHIND, left);  // numbers of columns
    if (threadIdx.x < ALL_TILES)
        for (int b = 0; b < tiles[threadIdx.x].count; b++) {
            const int column = tiles[threadIdx.x].column - first + b;
            if (column < known) positions[column] = threadIdx.x * 4 + b;
        }
    auto line_of = [&](int tile, int line) { return staged + tile * 512 + (line + tile / 4) % 32 * 16; };
    for (int64_t r = blockIdx.y; r < row_tiles; r += gridDim.y) {
#pragma unroll
        for (int t = warp; t < ALL_TILES; t += WARPS) {
            const ColumnTile tile = tiles[t];
            if (tile.count > 0 && tile.column - first < known)
                copy_16_bytes(shared_address(line_of(t, lane)), blocked + (tile.first + r * tile.across) * 512 + lane * 16, true);
        }
        wait_for_copies();
        __syncthreads();
        const int rows_here = min(rows - r * 128, int64_t(128));
#pragma unroll 1
        for (int step = warp; step < 32 * CHUNKS / 8; step += WARPS) {
            const int line = step % 32, chunk = step / 32 * 8 + lane % 8, quarter = lane / 8, row = line + 32 * quarter;
            uint8_t* run = scales + (r * 128 + row) * stride + first;
            const int aligned = -reinterpret_cast<uintptr_t>(run) % 16;  // offset of the run's first aligned 16 bytes
            const int column = aligned + 16 * chunk;
            auto word_of = [&](int tile) { return reinterpret_cast<const uint32_t*>(line_of(tile, line))[quarter]; };
            auto byte_of = [&](int c) { return word_of(positions[c] / 4) >> positions[c] % 4 * 8 & 0xFF; };
            if (row >= rows_here) continue;
            if (first == 0 && chunk == 0)  // first bytes of the row
#pragma unroll 1
                for (int c = 0; c < min(aligned, left); c++) run[c] = byte_of(c);
            if (column >= columns) continue;
            if (column + 16 > left) {  // last bytes of the row
#pragma unroll 1
                for (int c = column; c < left; c++) run[c] = byte_of(c);
                continue;
            }
            const int position = positions[column], tile = position / 4, shift = position % 4 * 8;
            uint32_t bytes[4];
            if (positions[column + 15] == position + 15) {
                uint32_t words[5];
#pragma unroll
                for (int w = 0; w < 4; w++) words[w] = word_of(tile + w);
                words[4] = shift ? word_of(tile + 4) : 0;
#pragma unroll
                for (int w = 0; w < 4; w++) bytes[w] = __funnelshift_r(words[w], words[w + 1], shift);
            } else {  // a group ends inside these 16 columns
#pragma unroll
                for (int w = 0; w < 4; w++) {
                    bytes[w] = 0;
#pragma unroll
                    for (int b = 0; b < 4; b++) bytes[w] |= byte_of(column + 4 * w + b) << 8 * b;
                }
            }
            store_16_bytes(run + column, bytes);
        }
        __syncthreads();  // before the next row of tiles overwrites shared memory
    }
}

}  // namespace zoo
