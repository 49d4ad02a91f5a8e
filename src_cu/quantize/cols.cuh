// The direction `cols`: blocks lie along M, results are stored transposed: q (K, M), scales (K, M / BLOCK).
//
// A warp takes 32 rows of a slab of the tile (tile.cuh); a lane the 4 bytes of each of them that hold one column, or two
// of 2-byte input. So a block of up to 32 rows is in one lane: no exchange for the largest magnitude, one scale a column
// and lane, and words of elements that lie along M already. Of a longer block each warp finds the largest magnitude of
// its rows, and reads those of the others from shared memory.
//
//   tile of x, COLUMNS wide     q^T in shared memory         q
//   warp 0  | rows 0..31        column 0 | rows 0 .. ROWS    (K, M), boxes of up to 128 bytes of each row
//   warp 1  | rows 32..63       column 1 | ..
//   ...                         ...
//
// The copy engine stores whole 16 bytes of a row. It is therefore shown a q whose rows end at a multiple of 16 bytes;
// where there is a remainder, the threads store it. How scales leave is in tile_scales.cuh.
#pragma once

#include <cstddef>
#include <cstdint>

#include "common/dependent_launch.cuh"
#include "common/global_memory.cuh"
#include "common/variant.cuh"
#include "quantize/input.cuh"
#include "quantize/scale_layout.cuh"
#include "quantize/tile.cuh"
#include "quantize/tile_scales.cuh"

namespace zoo {

// The scales of what a tile belongs to, a matrix or a group: where its first one lies, `stride` as in scale_layout.cuh,
// how many blocks it has along M, and which is the tile's first.
template <class Scale>
struct ScaleTarget {
    Scale* scales;
    int64_t stride;
    uint32_t blocks, block;
};

// Where a tile's rows come from and where its results go.
template <class Scale>
struct TilePlace {
    int group;
    int x_row, rows;  // of x; how many there are: the rest of the tile is blank
    int element;      // of the rows of q
    ScaleTarget<Scale> target;
};

// The results of a tile, in shared memory.
template <class X, class Format, class Tile>
struct TileCols {
    using In = Input<X>;
    using Scale = typename Format::Scale;
    static constexpr int LANE_ROWS = 32, LANE_COLUMNS = 4 / Tile::X_BYTES;
    static constexpr int WARPS_DOWN = Tile::ROWS / LANE_ROWS;
    static constexpr int BLOCK = Format::BLOCK, BLOCKS = Tile::ROWS / BLOCK;  // below each other
    static constexpr int LANE_BLOCK = BLOCK < LANE_ROWS ? BLOCK : LANE_ROWS;  // what a lane has of one
    static constexpr int BLOCK_WARPS = BLOCK / LANE_BLOCK;                    // that share one
    static constexpr int WORD_ROWS = 4 * Format::ELEMENTS_PER_BYTE, CHUNK_ROWS = 4 * WORD_ROWS;
    static constexpr int STEP = LANE_COLUMNS == 2 ? 16 : LANE_BLOCK;  // rows that are encoded at a time
    static constexpr int PART_ROWS = 8 * CHUNK_ROWS < Tile::ROWS ? 8 * CHUNK_ROWS : Tile::ROWS;  // of a box
    static constexpr int PARTS = Tile::ROWS / PART_ROWS, PART_BYTES = PART_ROWS / Format::ELEMENTS_PER_BYTE;
    static_assert(LANE_BLOCK % STEP == 0 && (STEP % CHUNK_ROWS == 0 || CHUNK_ROWS == 2 * STEP));
    static_assert(Tile::ROWS % BLOCK == 0 && LANE_ROWS % LANE_BLOCK == 0 && LANE_ROWS % CHUNK_ROWS == 0);

    uint8_t q[PARTS][Tile::COLUMNS * PART_BYTES];  // transposed, swizzled
    TileScales<Scale, Tile::COLUMNS, BLOCKS> scales;
    uint32_t magnitudes[BLOCK_WARPS > 1 ? WARPS_DOWN : 1][BLOCK_WARPS > 1 ? Tile::COLUMNS / LANE_COLUMNS : 1];

    __device__ __forceinline__ void quantize(const Format& format, Layout layout, const Tile& tile) {
        const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
        const int warp_down = warp % WARPS_DOWN, slab = warp / WARPS_DOWN;
        const int first_column = slab * Tile::SLAB_COLUMNS + lane * LANE_COLUMNS;

#pragma unroll 1
        for (int first = 0; first < LANE_ROWS; first += LANE_BLOCK) {
            const int first_row = warp_down * LANE_ROWS + first;
            uint32_t data[STEP];   // the last of the block
            uint32_t largest = 0;  // of each column by itself
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

            // Of 2-byte input, reading it once more takes fewer registers than keeping it: more CTAs.
#pragma unroll 1
            for (int row = first_row; row < first_row + LANE_BLOCK; row += STEP) {
                if (STEP < LANE_BLOCK) load(tile.slabs[slab], row, data);
                uint32_t words[LANE_COLUMNS][STEP / WORD_ROWS];
                encode(format, data, multiplier, words);
#pragma unroll
                for (int c = 0; c < LANE_COLUMNS; c++) {
                    auto target = [&](int r) {
                        return q[r / PART_ROWS] + swizzled<PART_BYTES>(first_column + c, r % PART_ROWS / CHUNK_ROWS);
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

    // STEP rows of the lane's columns.
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

    // Makes the elements from this row to the end of its block 0, which the NaN of the block has made NaN. Those of blocks
    // without any row of x are 0. By all threads, between barriers.
    __device__ __forceinline__ void blank_end_of_block(int first_row) {
        const int rows = (first_row + BLOCK - 1) / BLOCK * BLOCK - first_row;
#pragma unroll 1
        for (int i = threadIdx.x; i < Tile::COLUMNS * rows; i += Tile::THREADS) {
            const int column = i % Tile::COLUMNS, row = first_row + i / Tile::COLUMNS;
            const int at = swizzled<PART_BYTES>(column, row % PART_ROWS / CHUNK_ROWS);
            q[row / PART_ROWS][at + row % CHUNK_ROWS / Format::ELEMENTS_PER_BYTE] = 0;
        }
    }

    // All elements 0, of a tile without rows. By all threads, before a barrier.
    __device__ __forceinline__ void clear() {
#pragma unroll 1
        for (int i = threadIdx.x; i < int(sizeof(q) / 16); i += Tile::THREADS)
            reinterpret_cast<uint4*>(q)[i] = make_uint4(0, 0, 0, 0);
    }

    // Elements of a column, as they lie along M.
    __device__ __forceinline__ uint32_t word_at(int column, int word) const {
        const int row = word * WORD_ROWS;
        const int at = swizzled<PART_BYTES>(column, row % PART_ROWS / CHUNK_ROWS) + word % 4 * 4;
        return *reinterpret_cast<const uint32_t*>(q[row / PART_ROWS] + at);
    }

    // 16 bytes of a column.
    __device__ __forceinline__ uint4 chunk_at(int column, int chunk) const {
        const int row = chunk * CHUNK_ROWS;
        return *reinterpret_cast<const uint4*>(q[row / PART_ROWS] + swizzled<PART_BYTES>(column, row % PART_ROWS / CHUNK_ROWS));
    }

    // The tile's columns are `rows` of q from this one on, and its rows are elements of them. After a barrier, by all
    // threads; the first one waits before it ends (wait_until_stores_have_read). `map` is q with rows of whole chunks.
    template <class Map>
    __device__ __forceinline__ void store(const Map& map, uint8_t* target, int64_t target_stride, int row, int rows, int element,
                                          int64_t elements) const {
        const int64_t whole = elements / CHUNK_ROWS * CHUNK_ROWS;
        if (threadIdx.x == 0)
#pragma unroll
            for (int part = 0; part < PARTS; part++) {
                const int at = element + part * PART_ROWS;
                if (at < whole) store_box(map, q[part], at / Format::ELEMENTS_PER_BYTE, row);
            }
        const int64_t rest = whole - element;  // where in the tile the remainder begins
        if (elements == whole || rest >= Tile::ROWS) return;
        const int bytes = (elements - whole + Format::ELEMENTS_PER_BYTE - 1) / Format::ELEMENTS_PER_BYTE;
#pragma unroll 1
        for (int i = threadIdx.x; i < min(Tile::COLUMNS, rows - row); i += Tile::THREADS) {
            const uint8_t* chunk = q[rest / PART_ROWS] + swizzled<PART_BYTES>(i, rest % PART_ROWS / CHUNK_ROWS);
            uint8_t* end = target + (row + i) * target_stride + whole / Format::ELEMENTS_PER_BYTE;
#pragma unroll 1
            for (int b = 0; b < bytes; b++) end[b] = chunk[b];
        }
    }

    // Of columns of x from `column` on. After a barrier, by all threads.
    __device__ __forceinline__ void store_scales(Layout layout, const TilePlace<Scale>& place, int64_t column, int64_t K) const {
        scales.store(layout, {place.target.scales, place.target.stride, column, K, place.target.block, place.target.blocks,
                              (place.rows + BLOCK - 1) / BLOCK});
    }
};

// The grouping that is none: x is one matrix.
template <class Format, class Tile>
struct WholeMatrix {
    using Scale = typename Format::Scale;
    static constexpr int BLOCK = Format::BLOCK;

    static constexpr bool ROWS_FOLLOW = false;     // after the last one of a tile: here, outside x, zeros
    static constexpr bool STORES_PADDING = false;  // elements of blank rows

    Scale* scales;
    int64_t scales_stride, M;

    __device__ __forceinline__ TilePlace<Scale> place(Layout, uint32_t tile, uint64_t) const {
        const int row = tile * Tile::ROWS;
        const uint32_t blocks = (M + BLOCK - 1) / BLOCK;
        return {0, row, int(min(M - row, int64_t(Tile::ROWS))), row, {scales, scales_stride, blocks, uint32_t(row) / BLOCK}};
    }
    __device__ __forceinline__ int64_t entry(int) const { return 0; }
    template <class Cols>
    __device__ __forceinline__ void store(const Cols& cols, const TensorMap& map, uint8_t* q, int64_t q_stride, int column,
                                          int64_t K, const TilePlace<Scale>& place) const {
        cols.store(map, q, q_stride, column, K, place.element, M);
    }
};

template <class X, class Format, class Tile>
struct SharedOfCols {
    Tile x;
    alignas(1024) TileCols<X, Format, Tile> cols;
    alignas(8) Barrier loaded;
    TilePlace<typename Format::Scale> place;  // here it takes no registers
};

// Up to the last byte: alignment would make it as long as the next multiple of 1024.
template <class Shared>
constexpr int BYTES_OF_COLS = offsetof(Shared, place) + sizeof(Shared::place);

// The kernel. `Groups` says where tiles lie: WholeMatrix, those of column_groups.cuh, or Experts.
template <class X, class Of, class Tile, class Groups, class XMap>
__device__ __forceinline__ void quantize_cols(Layout layout, typename Of::Argument format_argument, const XMap& x,
                                              const TensorMap& q_map, uint8_t* q, int64_t q_stride, int64_t K, Groups groups) {
    using Format = typename Of::Type;
    using Cols = TileCols<X, Format, Tile>;
    using Shared = SharedOfCols<X, Format, Tile>;
    extern __shared__ __align__(1024) uint8_t memory[];
    Shared& shared = *reinterpret_cast<Shared*>(memory);

    let_next_kernel_launch();
    const uint64_t columns = columns_end(layout, K);
    const TileCorner corner = tile_corner<Tile>(columns);
    if (threadIdx.x == 0) initialise(&shared.loaded, 1);
    __syncwarp();
    wait_for_previous_kernel();
    if (!Groups::ROWS_FOLLOW || threadIdx.x < 32) {  // a search through groups takes a warp
        const auto found = groups.place(layout, corner.row / Tile::ROWS, columns);
        if (threadIdx.x == 0) {
            if (found.rows > 0) shared.x.load(matrix_of(x, found.group), found.x_row, corner.column, &shared.loaded);
            shared.place = found;
        }
    }
    __syncthreads();
    const auto& place = shared.place;
    Format format = Of::make(format_argument, groups.entry(place.group));
    format.prepare();
    if (place.rows > 0) {
        wait(&shared.loaded, 0);
        // Warps without rows rest, unless they have to say zero or what is theirs of a longer block.
        constexpr bool REST = Groups::ROWS_FOLLOW && !Groups::STORES_PADDING && Cols::BLOCK_WARPS == 1;
        if (Groups::ROWS_FOLLOW && place.rows < Tile::ROWS) {
            const int of_warps = (place.rows + Cols::LANE_ROWS - 1) / Cols::LANE_ROWS * Cols::LANE_ROWS;
            shared.x.blank(place.rows, REST ? of_warps : Tile::ROWS);
            __syncthreads();
        }
        if (!REST || int(threadIdx.x) / 32 % Cols::WARPS_DOWN * Cols::LANE_ROWS < place.rows)
            shared.cols.quantize(format, layout, shared.x);
        if constexpr (Groups::STORES_PADDING && Format::ELEMENTS_PER_BYTE == 1) {
            if (place.rows % Format::BLOCK != 0) {
                __syncthreads();
                shared.cols.blank_end_of_block(place.rows);
            }
        }
    } else if (Groups::STORES_PADDING) {
        shared.cols.clear();
    }
    let_copies_see_shared_memory();
    __syncthreads();

    groups.store(shared.cols, q_map, q, q_stride, corner.column, K, place);
    shared.cols.store_scales(layout, place, corner.column, K);
    if (threadIdx.x == 0) wait_until_stores_have_read();
}

}  // namespace zoo
