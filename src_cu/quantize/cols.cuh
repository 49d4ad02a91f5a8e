// The direction `cols`: blocks lie along M, results are stored transposed: q (K, M), scales (K, M / BLOCK).
//
// A warp takes 32 rows of a slab of the tile (tile.cuh); a lane the 4 bytes of each of them that hold one column, or two
// of 2-byte input. So whole blocks are in one lane: no exchange for the largest magnitude, one scale a column and lane,
// and words of elements that lie along M already. They go to shared memory, transposed, and from there as boxes of 128
// bytes of each row of q. Scales go to shared memory too, so that those below each other are stored together.
//
// The copy engine stores whole 16 bytes of a row. It is therefore shown a q whose rows end at a multiple of 16 bytes;
// where M has a remainder, the threads store it.
#pragma once

#include <cstdint>

#include "common/dependent_launch.cuh"
#include "common/variant.cuh"
#include "quantize/input.cuh"
#include "quantize/scale_layout.cuh"
#include "quantize/tile.cuh"

namespace zoo {

// 4 bytes of a row: the magnitudes in them, as integers (see input.cuh), two columns for 2-byte input.
template <class X>
struct ColumnMagnitudes {
    static constexpr uint32_t MAGNITUDES = 0x7FFF7FFF;
    static __device__ __forceinline__ uint32_t larger(uint32_t a, uint32_t b) { return __vmaxu2(a, b); }
    static __device__ __forceinline__ uint32_t of(uint32_t word, int column) {
        return column ? word >> 16 : word & 0xFFFF;
    }
};

template <>
struct ColumnMagnitudes<f32> {
    static constexpr uint32_t MAGNITUDES = 0x7FFFFFFF;
    static __device__ __forceinline__ uint32_t larger(uint32_t a, uint32_t b) { return max(a, b); }
    static __device__ __forceinline__ uint32_t of(uint32_t word, int) { return word; }
};

// The results of a tile, in shared memory.
template <class X, class Format, class Tile>
struct TileCols {
    using In = Input<X>;
    using Magnitudes = ColumnMagnitudes<X>;
    static constexpr int LANE_ROWS = 32, LANE_COLUMNS = 4 / Tile::X_BYTES;
    static constexpr int BLOCK = Format::BLOCK, BLOCKS = Tile::ROWS / BLOCK;  // below each other
    static constexpr int WORD_ROWS = Format::ELEMENTS_PER_WORD, CHUNK_ROWS = 4 * WORD_ROWS;
    static constexpr int PARTS = Tile::ROWS / 128, ROW_BYTES = 128 * 4 / WORD_ROWS;
    static_assert(LANE_ROWS % BLOCK == 0, "a longer block needs the largest magnitudes of several warps");
    static_assert(WORD_ROWS % 4 == 0 && LANE_ROWS % CHUNK_ROWS == 0);

    uint8_t q[PARTS][Tile::COLUMNS * ROW_BYTES];  // transposed, 128 rows of x a part, swizzled
    uint8_t scales[Tile::COLUMNS][BLOCKS];

    __device__ __forceinline__ void quantize(const Tile& tile) {
        constexpr int WARPS_DOWN = Tile::ROWS / LANE_ROWS, CHUNKS = LANE_ROWS / CHUNK_ROWS;
        const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
        const int first_row = warp % WARPS_DOWN * LANE_ROWS, slab = warp / WARPS_DOWN;
        const int first_column = slab * Tile::SLAB_COLUMNS + lane * LANE_COLUMNS;

        uint32_t data[LANE_ROWS];
#pragma unroll
        for (int r = 0; r < LANE_ROWS; r++) {
            const uint8_t* row = tile.slabs[slab] + first_row * 128;
            data[r] = *reinterpret_cast<const uint32_t*>(row + swizzled<128>(r, lane / 4) + lane % 4 * 4);
        }

        uint32_t words[LANE_COLUMNS][LANE_ROWS / WORD_ROWS];
#pragma unroll
        for (int block = 0; block < LANE_ROWS / BLOCK; block++) {
            uint32_t magnitudes = 0;
#pragma unroll
            for (int r = 0; r < BLOCK; r++)
                magnitudes = Magnitudes::larger(magnitudes, data[block * BLOCK + r] & Magnitudes::MAGNITUDES);
            float multiplier[LANE_COLUMNS];
#pragma unroll
            for (int c = 0; c < LANE_COLUMNS; c++) {
                const uint32_t scale = Format::scale_of(In::magnitude_to_float(Magnitudes::of(magnitudes, c)));
                scales[first_column + c][first_row / BLOCK + block] = scale;
                multiplier[c] = Format::multiplier(scale);
            }
#pragma unroll
            for (int w = block * BLOCK / WORD_ROWS; w < (block + 1) * BLOCK / WORD_ROWS; w++) {
                float values[WORD_ROWS * LANE_COLUMNS];  // by rows
#pragma unroll
                for (int r = 0; r < WORD_ROWS; r += 4) {
                    const uint32_t* rows = data + w * WORD_ROWS + r;
                    float four_rows[In::VALUES];
                    In::to_float(make_uint4(rows[0], rows[1], rows[2], rows[3]), four_rows);
#pragma unroll
                    for (int i = 0; i < In::VALUES; i++) values[r * LANE_COLUMNS + i] = four_rows[i];
                }
#pragma unroll
                for (int c = 0; c < LANE_COLUMNS; c++) {
                    float column[WORD_ROWS];
#pragma unroll
                    for (int r = 0; r < WORD_ROWS; r++) column[r] = values[r * LANE_COLUMNS + c];
                    words[c][w] = Format::encode(column, multiplier[c]);
                }
            }
        }

#pragma unroll
        for (int c = 0; c < LANE_COLUMNS; c++)
#pragma unroll
            for (int i = 0; i < CHUNKS; i++) {
                const uint32_t* chunk = words[c] + 4 * i;
                const int at = swizzled<ROW_BYTES>(first_column + c, first_row % 128 / CHUNK_ROWS + i);
                *reinterpret_cast<uint4*>(q[first_row / 128] + at) = make_uint4(chunk[0], chunk[1], chunk[2], chunk[3]);
            }
    }

    // After a barrier, by all threads; the first one waits before it ends (wait_until_stores_have_read).
    // `map` is q with rows of M / CHUNK_ROWS whole chunks.
    __device__ __forceinline__ void store(const TensorMap& map, uint8_t* target, int64_t target_stride, TileCorner corner,
                                          int64_t M, int64_t K) const {
        const int64_t whole = M / CHUNK_ROWS * CHUNK_ROWS;
        if (threadIdx.x == 0)
#pragma unroll
            for (int part = 0; part < PARTS; part++) {
                const int row = corner.row + part * 128;
                if (row < whole) store_box(map, q[part], row * 4 / WORD_ROWS, corner.column);
            }
        const int64_t rest = whole - corner.row;  // where in the tile the remainder of M begins
        if (M == whole || rest >= Tile::ROWS) return;
        const int bytes = ((M - whole) * 4 + WORD_ROWS - 1) / WORD_ROWS;
        const int columns_left = min(int64_t(Tile::COLUMNS), K - corner.column);
        for (int column = threadIdx.x; column < columns_left; column += Tile::THREADS) {
            const uint8_t* chunk = q[rest / 128] + swizzled<ROW_BYTES>(column, rest % 128 / CHUNK_ROWS);
            uint8_t* row = target + (corner.column + column) * target_stride + whole * 4 / WORD_ROWS;
            for (int i = 0; i < bytes; i++) row[i] = chunk[i];
        }
    }

    // After a barrier, by all threads.
    template <Layout LAYOUT>
    __device__ __forceinline__ void store_scales(uint8_t* target, int64_t stride, TileCorner corner, uint64_t M,
                                                 uint64_t K) const {
        using Scales = ScaleLayout<LAYOUT, BLOCK, 4, BLOCK>;  // here only for where a scale lies
        const uint64_t whole_blocks = (M + BLOCK - 1) / BLOCK * BLOCK;
#pragma unroll
        for (int i = threadIdx.x; i < Tile::COLUMNS * BLOCKS; i += Tile::THREADS) {
            const uint64_t row = corner.row + i % BLOCKS * BLOCK, column = corner.column + i / BLOCKS;
            const uint32_t scale = row < M && column < K ? scales[i / BLOCKS][i % BLOCKS] : 0;  // 0: padding
            if (column < Scales::rows_end(K)) Scales::store(target, stride, column, row, whole_blocks, scale);
        }
    }
};

template <class X, class Format, Layout LAYOUT, int ROWS, int COLUMNS>
__device__ __forceinline__ void quantize_cols(const TensorMap& x, const TensorMap& q_map, uint8_t* q, uint8_t* scales,
                                              int64_t M, int64_t K, int64_t q_stride, int64_t scales_stride) {
    using XTile = Tile<X, ROWS, COLUMNS>;
    using Cols = TileCols<X, Format, XTile>;
    struct Shared {
        XTile x;
        alignas(1024) Cols cols;
        alignas(8) Barrier loaded;
    };
    extern __shared__ __align__(1024) uint8_t memory[];
    Shared& shared = *reinterpret_cast<Shared*>(memory);

    let_next_kernel_launch();
    const TileCorner corner = tile_corner<XTile>(columns_end<LAYOUT>(K));
    if (threadIdx.x == 0) initialise(&shared.loaded, 1);
    wait_for_previous_kernel();
    if (threadIdx.x == 0) shared.x.load(x, corner.row, corner.column, &shared.loaded);
    __syncthreads();
    wait(&shared.loaded, 0);

    shared.cols.quantize(shared.x);
    let_copies_see_shared_memory();
    __syncthreads();

    shared.cols.store(q_map, q, q_stride, corner, M, K);
    shared.cols.template store_scales<LAYOUT>(scales, scales_stride, corner, M, K);
    if (threadIdx.x == 0) wait_until_stores_have_read();
}

}  // namespace zoo
