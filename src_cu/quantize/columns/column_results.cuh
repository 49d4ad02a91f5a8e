// A tile's results along M in shared memory: blocks extend along M, and elements are stored transposed. Included by
// columns/columns.cuh, columns/both.cuh and the groupings in groups/.
//
// A warp has 32 rows of a slab of the tile (columns/tile.cuh). A lane has 4 bytes of each row: one column, or two
// columns of 2-byte input. So a lane has a block of up to 32 rows alone. It finds the largest magnitude and the scale
// without an exchange, and its words of elements already extend along M. A longer block spans several warps, which exchange
// largest magnitudes through shared memory.
//
//   tile of x, COLUMNS wide     q^T in shared memory         q
//   warp 0  | rows 0..31        column 0 | rows 0 .. ROWS    (K, M), boxes of up to 128 bytes of each row
//   warp 1  | rows 32..63       column 1 | ..
//   ...                         ...
//
// TMA stores whole 16 bytes of a row. Its tensor map therefore describes rows of q that end at a multiple of 16 bytes.
// Threads store the remainder. scales/tile_scales.cuh stores the scales.
#pragma once

#include <cstdint>

#include "common/global_memory.cuh"
#include "common/input_values.cuh"
#include "common/tensor_copy.cuh"
#include "common/variant.cuh"
#include "quantize/columns/tile.cuh"
#include "quantize/scales/tile_scales.cuh"

namespace zoo {

// Where the scales of a matrix or group are. `stride` is that of scales/scale_layout.cuh. `blocks` counts blocks along M;
// `block` is the first block of the tile.
template <class Scale>
struct ScaleTarget {
    Scale* scales;
    int64_t stride;
    uint32_t blocks, block;
};

// Where the rows of a tile come from and where its results go.
template <class Scale>
struct TileAssignment {
    int group;
    int x_row, rows;  // first row of x and number of rows; the rest of the tile is blank
    int element;      // first element of the rows of q
    ScaleTarget<Scale> target;
};

// X: dtype of x. Rows of the tile become elements of rows of q; columns of the tile become rows of q.
template <class X, class Format, class Tile>
struct ColumnResults {
    using In = Input<X>;
    using Scale = typename Format::Scale;
    static constexpr int LANE_ROWS = 32, LANE_COLUMNS = 4 / Tile::X_BYTES;
    static constexpr int WARPS_DOWN = Tile::ROWS / LANE_ROWS;
    static constexpr int BLOCK = Format::BLOCK, BLOCKS = Tile::ROWS / BLOCK;  // blocks below each other
    static constexpr int LANE_BLOCK = BLOCK < LANE_ROWS ? BLOCK : LANE_ROWS;  // a lane's rows of a block
    static constexpr int BLOCK_WARPS = BLOCK / LANE_BLOCK;                    // warps that share a block
    static constexpr int WORD_ROWS = 4 * Format::ELEMENTS_PER_BYTE, CHUNK_ROWS = 4 * WORD_ROWS;
    static constexpr int STEP = LANE_COLUMNS == 2 ? 16 : LANE_BLOCK;                            // rows that are encoded at a time
    static constexpr int BOX_ROWS = 8 * CHUNK_ROWS < Tile::ROWS ? 8 * CHUNK_ROWS : Tile::ROWS;  // rows of a TMA box
    static constexpr int BOXES = Tile::ROWS / BOX_ROWS, BOX_BYTES = BOX_ROWS / Format::ELEMENTS_PER_BYTE;
    static_assert(LANE_BLOCK % STEP == 0 && (STEP % CHUNK_ROWS == 0 || CHUNK_ROWS == 2 * STEP));
    static_assert(Tile::ROWS % BLOCK == 0 && LANE_ROWS % LANE_BLOCK == 0 && LANE_ROWS % CHUNK_ROWS == 0);

    uint8_t q[BOXES][Tile::COLUMNS * BOX_BYTES];  // transposed, swizzled
    TileScales<Scale, Tile::COLUMNS, BLOCKS> scales;
    uint32_t magnitudes[BLOCK_WARPS > 1 ? WARPS_DOWN : 1][BLOCK_WARPS > 1 ? Tile::COLUMNS / LANE_COLUMNS : 1];

    __device__ __forceinline__ void quantize(const Format& format, Layout layout, const Tile& tile) {
        const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
        const int warp_down = warp % WARPS_DOWN, slab = warp / WARPS_DOWN;
        const int first_column = slab * Tile::SLAB_COLUMNS + lane * LANE_COLUMNS;

#pragma unroll 1
        for (int first = 0; first < LANE_ROWS; first += LANE_BLOCK) {
            const int first_row = warp_down * LANE_ROWS + first;
            uint32_t data[STEP];   // the last STEP rows of the block
            uint32_t largest = 0;  // of each column separately
#pragma unroll
            for (int row = first_row; row < first_row + LANE_BLOCK; row += STEP) {
                load(tile.slabs[slab], row, data);
#pragma unroll
                for (int r = 0; r < STEP; r += 4)
                    largest = In::larger(largest, In::largest(make_uint4(data[r], data[r + 1], data[r + 2], data[r + 3])));
            }
            if constexpr (BLOCK_WARPS > 1) {
                magnitudes[warp_down][first_column / LANE_COLUMNS] = largest;
                __syncthreads();
#pragma unroll
                for (int w = 0; w < BLOCK_WARPS; w++)
                    largest =
                        In::larger(largest, magnitudes[warp_down / BLOCK_WARPS * BLOCK_WARPS + w][first_column / LANE_COLUMNS]);
            }
            float multiplier[LANE_COLUMNS];
#pragma unroll
            for (int c = 0; c < LANE_COLUMNS; c++) {
                const uint32_t scale = format.scale_of(In::magnitude_to_float(In::magnitude_at(largest, c)));
                if (warp_down % BLOCK_WARPS == 0) scales.put(layout, first_column + c, first_row / BLOCK, scale);
                multiplier[c] = format.multiplier(scale);
            }

            // With 2-byte input a second read needs fewer registers than keeping the block, so more CTAs fit.
#pragma unroll 1
            for (int row = first_row; row < first_row + LANE_BLOCK; row += STEP) {
                if (STEP < LANE_BLOCK) load(tile.slabs[slab], row, data);
                uint32_t words[LANE_COLUMNS][STEP / WORD_ROWS];
                encode(format, data, multiplier, words);
#pragma unroll
                for (int c = 0; c < LANE_COLUMNS; c++) {
                    auto target = [&](int r) {
                        return q[r / BOX_ROWS] + swizzled<BOX_BYTES>(first_column + c, r % BOX_ROWS / CHUNK_ROWS);
                    };
                    if constexpr (STEP < CHUNK_ROWS) {
                        store_8_bytes(target(row) + row % CHUNK_ROWS / Format::ELEMENTS_PER_BYTE, words[c]);
                    } else {
#pragma unroll
                        for (int r = 0; r < STEP; r += CHUNK_ROWS) {
                            const uint32_t* chunk = words[c] + r / WORD_ROWS;
                            *reinterpret_cast<uint4*>(target(row + r)) = make_uint4(chunk[0], chunk[1], chunk[2], chunk[3]);
                        }
                    }
                }
            }
        }
    }

    // Loads STEP rows of the lane's columns.
    static __device__ __forceinline__ void load(const uint8_t* slab, int row, uint32_t (&data)[STEP]) {
        const int lane = threadIdx.x % 32;
#pragma unroll
        for (int r = 0; r < STEP; r++)
            data[r] = *reinterpret_cast<const uint32_t*>(slab + row * 128 + swizzled<128>(r, lane / 4) + lane % 4 * 4);
    }

    static __device__ __forceinline__ void encode(const Format& format, const uint32_t (&data)[STEP],
                                                  const float (&multiplier)[LANE_COLUMNS],
                                                  uint32_t (&words)[LANE_COLUMNS][STEP / WORD_ROWS]) {
        if constexpr (WORD_ROWS == 8) {
            format.template encode_columns<In>(data, multiplier, words);
        } else {
#pragma unroll
            for (int c = 0; c < LANE_COLUMNS; c++) {
                Floats<STEP> values;
                column_values<In>(data, c, values.values);
                format.template encode_loaded<Input<Floats<STEP>>>(values, multiplier[c], words[c]);
            }
        }
    }

    // Zeroes the elements from first_row to the end of its block: a block with NaN has made them NaN. Blocks without rows
    // are 0 already. Called by all threads, between barriers.
    __device__ __forceinline__ void blank_end_of_block(int first_row) {
        const int rows = (first_row + BLOCK - 1) / BLOCK * BLOCK - first_row;
#pragma unroll 1
        for (int i = threadIdx.x; i < Tile::COLUMNS * rows; i += Tile::THREADS) {
            const int column = i % Tile::COLUMNS, row = first_row + i / Tile::COLUMNS;
            const int at = swizzled<BOX_BYTES>(column, row % BOX_ROWS / CHUNK_ROWS);
            q[row / BOX_ROWS][at + row % CHUNK_ROWS / Format::ELEMENTS_PER_BYTE] = 0;
        }
    }

    // Zeroes all elements of a tile without rows. Called by all threads, before a barrier.
    __device__ __forceinline__ void clear() {
#pragma unroll 1
        for (int i = threadIdx.x; i < int(sizeof(q) / 16); i += Tile::THREADS)
            reinterpret_cast<uint4*>(q)[i] = make_uint4(0, 0, 0, 0);
    }

    // A word or a chunk (16 bytes) of elements of a column, counted along M.
    __device__ __forceinline__ uint32_t word_at(int column, int word) const {
        const int row = word * WORD_ROWS;
        const int at = swizzled<BOX_BYTES>(column, row % BOX_ROWS / CHUNK_ROWS) + word % 4 * 4;
        return *reinterpret_cast<const uint32_t*>(q[row / BOX_ROWS] + at);
    }
    __device__ __forceinline__ uint4 chunk_at(int column, int chunk) const {
        const int row = chunk * CHUNK_ROWS;
        return *reinterpret_cast<const uint4*>(q[row / BOX_ROWS] + swizzled<BOX_BYTES>(column, row % BOX_ROWS / CHUNK_ROWS));
    }

    // Stores the tile. Its columns are rows of q from `row` on. Its rows are elements of q from `element` on. `map`
    // describes q with rows of whole chunks. Called by all threads, after a barrier. Thread 0 must wait before it ends
    // (wait_until_stores_have_read).
    template <class Map>
    __device__ __forceinline__ void store(const Map& map, uint8_t* target, int64_t target_stride, int row, int rows, int element,
                                          int64_t elements) const {
        const int64_t whole = elements / CHUNK_ROWS * CHUNK_ROWS;
        if (threadIdx.x == 0)
#pragma unroll
            for (int box = 0; box < BOXES; box++) {
                const int at = element + box * BOX_ROWS;
                if (at < whole) store_box(map, q[box], at / Format::ELEMENTS_PER_BYTE, row);
            }
        const int64_t rest = whole - element;  // where the remainder begins in the tile
        if (elements == whole || rest >= Tile::ROWS) return;
        const int bytes = (elements - whole + Format::ELEMENTS_PER_BYTE - 1) / Format::ELEMENTS_PER_BYTE;
#pragma unroll 1
        for (int i = threadIdx.x; i < min(Tile::COLUMNS, rows - row); i += Tile::THREADS) {
            const uint8_t* chunk = q[rest / BOX_ROWS] + swizzled<BOX_BYTES>(i, rest % BOX_ROWS / CHUNK_ROWS);
            uint8_t* end = target + (row + i) * target_stride + whole / Format::ELEMENTS_PER_BYTE;
#pragma unroll 1
            for (int b = 0; b < bytes; b++) end[b] = chunk[b];
        }
    }

    // Stores the scales of columns of x from `column` on. Called by all threads, after a barrier.
    __device__ __forceinline__ void store_scales(Layout layout, const TileAssignment<Scale>& assignment, int64_t column,
                                                 int64_t K) const {
        scales.store(layout, {assignment.target.scales, assignment.target.stride, column, K, assignment.target.block,
                              assignment.target.blocks, (assignment.rows + BLOCK - 1) / BLOCK});
    }
};

}  // namespace zoo
