// The direction `both`: x is read once and quantised along K and along M; the results are those of `rows` and of `cols`.
//
// The tile lies in shared memory (tile.cuh). Along M a lane takes columns of it (cols.cuh); along K a lane takes whole
// blocks, the lanes of a warp those of rows below each other. Both write their elements to shared memory, from where the
// copy engine takes them.
#pragma once

#include <cstdint>

#include "common/dependent_launch.cuh"
#include "common/variant.cuh"
#include "quantize/cols.cuh"
#include "quantize/input.cuh"
#include "quantize/scale_layout.cuh"
#include "quantize/tile.cuh"

namespace zoo {

// The results along K of a tile, in shared memory.
template <class X, class Format, class Tile>
struct TileRows {
    using In = Input<X>;
    static constexpr int BLOCK = Format::BLOCK, BLOCKS = Tile::COLUMNS / BLOCK;  // beside each other
    static constexpr int CHUNKS = BLOCK / In::VALUES;
    static constexpr int WORDS = BLOCK / Format::ELEMENTS_PER_WORD;
    static constexpr int ROW_BYTES = Tile::COLUMNS * 4 / Format::ELEMENTS_PER_WORD;
    static_assert(WORDS % 4 == 0 && In::VALUES % Format::ELEMENTS_PER_WORD == 0);

    uint8_t q[Tile::ROWS * ROW_BYTES];  // swizzled
    uint8_t scales[Tile::ROWS][BLOCKS];

    __device__ __forceinline__ void quantize(const Tile& tile) {
#pragma unroll
        for (int n = 0; n < Tile::ROWS * BLOCKS / Tile::THREADS; n++) {
            const int i = n * Tile::THREADS + threadIdx.x;
            const int row = i % Tile::ROWS, block = i / Tile::ROWS;
            const int byte = block * BLOCK * Tile::X_BYTES;
            const uint8_t* x = tile.slabs[byte / 128];
            uint4 data[CHUNKS];
#pragma unroll
            for (int c = 0; c < CHUNKS; c++)
                data[c] = *reinterpret_cast<const uint4*>(x + swizzled<128>(row, byte % 128 / 16 + c));
            uint32_t magnitude = 0;
#pragma unroll
            for (int c = 0; c < CHUNKS; c++) magnitude = max(magnitude, In::largest_magnitude(data[c]));
            const uint32_t scale = Format::scale_of(In::magnitude_to_float(magnitude));
            scales[row][block] = scale;
            const float multiplier = Format::multiplier(scale);
            uint32_t words[WORDS];
#pragma unroll
            for (int c = 0; c < CHUNKS; c++) {
                float values[In::VALUES];
                In::to_float(data[c], values);
#pragma unroll
                for (int v = 0; v < In::VALUES; v += Format::ELEMENTS_PER_WORD)
                    words[(c * In::VALUES + v) / Format::ELEMENTS_PER_WORD] = Format::encode(values + v, multiplier);
            }
#pragma unroll
            for (int w = 0; w < WORDS; w += 4)
                *reinterpret_cast<uint4*>(q + swizzled<ROW_BYTES>(row, (block * WORDS + w) / 4)) =
                    make_uint4(words[w], words[w + 1], words[w + 2], words[w + 3]);
        }
    }

    // After a barrier.
    template <Layout LAYOUT>
    __device__ __forceinline__ void store_scales(uint8_t* target, int64_t stride, TileCorner corner, uint64_t M,
                                                 uint64_t K) const {
        using Scales = ScaleLayout<LAYOUT, BLOCK, 4, BLOCK>;
#pragma unroll
        for (int i = threadIdx.x; i < Tile::ROWS * BLOCKS; i += Tile::THREADS) {
            const uint64_t row = corner.row + i / BLOCKS, column = corner.column + i % BLOCKS * BLOCK;
            const uint32_t scale = row < M && column < K ? scales[i / BLOCKS][i % BLOCKS] : 0;  // 0: padding
            if (row < Scales::rows_end(M)) Scales::store(target, stride, row, column, K, scale);
        }
    }
};

template <class X, class Format, Layout LAYOUT, int ROWS, int COLUMNS>
__device__ __forceinline__ void quantize_both(const TensorMap& x, const TensorMap& q_rows_map, uint8_t* scales_rows,
                                              const TensorMap& q_cols_map, uint8_t* q_cols, uint8_t* scales_cols, int64_t M,
                                              int64_t K, int64_t scales_rows_stride, int64_t q_cols_stride,
                                              int64_t scales_cols_stride) {
    using XTile = Tile<X, ROWS, COLUMNS>;
    using Rows = TileRows<X, Format, XTile>;
    using Cols = TileCols<X, Format, XTile>;
    struct Shared {
        XTile x;
        alignas(1024) Rows rows;
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

    shared.rows.quantize(shared.x);
    shared.cols.quantize(shared.x);
    let_copies_see_shared_memory();
    __syncthreads();

    if (threadIdx.x == 0) store_box(q_rows_map, shared.rows.q, corner.column * 4 / Format::ELEMENTS_PER_WORD, corner.row);
    shared.cols.store(q_cols_map, q_cols, q_cols_stride, corner, M, K);
    shared.rows.template store_scales<LAYOUT>(scales_rows, scales_rows_stride, corner, M, K);
    shared.cols.template store_scales<LAYOUT>(scales_cols, scales_cols_stride, corner, M, K);
    if (threadIdx.x == 0) wait_until_stores_have_read();
}

}  // namespace zoo
