// Quantises x along K and along M from one read: the results of `rows` and of `cols`. Included by kernels/both.cu.
//
// The tile is in shared memory (columns/tile.cuh). Along M a lane quantises columns (columns/column_results.cuh). Along K a
// lane quantises 32 columns of a row. The lanes of a warp have rows below each other, or columns side by side where they
// share a block. Both directions write their elements to shared memory, from where TMA stores them.
//
//   tile -> RowResults      q_rows (M, K), scales along K
//        -> ColumnResults   q_cols (K, M), scales along M
#pragma once

#include <cstdint>

#include "common/dependent_launch.cuh"
#include "common/global_memory.cuh"
#include "common/input_values.cuh"
#include "common/variant.cuh"
#include "quantize/columns/columns.cuh"
#include "quantize/columns/tile.cuh"
#include "quantize/scales/tile_scales.cuh"

namespace zoo {

// A tile's results along K, in shared memory.
template <class X, class Format, class Tile>
struct RowResults {
    using In = Input<X>;
    using Scale = typename Format::Scale;
    static constexpr int LANE_COLUMNS = 32, LANES_ACROSS = Tile::COLUMNS / LANE_COLUMNS;
    static constexpr int BLOCK = Format::BLOCK, BLOCKS = Tile::COLUMNS / BLOCK;  // blocks side by side
    static constexpr int LANE_BLOCK = BLOCK < LANE_COLUMNS ? BLOCK : LANE_COLUMNS;
    static constexpr int BLOCK_LANES = BLOCK / LANE_BLOCK;  // lanes that share a block
    static constexpr int CHUNKS = LANE_COLUMNS / In::VALUES, BLOCK_CHUNKS = LANE_BLOCK / In::VALUES;
    static constexpr int WORDS = LANE_BLOCK / (4 * Format::ELEMENTS_PER_BYTE);
    static constexpr int CHUNK_COLUMNS = 16 * Format::ELEMENTS_PER_BYTE;
    static constexpr int ROW_BYTES = Tile::COLUMNS / Format::ELEMENTS_PER_BYTE;
    static_assert(Tile::COLUMNS % BLOCK == 0 && (WORDS == 2 || WORDS == 4 || WORDS == 8));

    uint8_t q[Tile::ROWS * ROW_BYTES];  // swizzled
    TileScales<Scale, Tile::ROWS, BLOCKS> scales;

    __device__ __forceinline__ void quantize(const Format& format, Layout layout, const Tile& tile) {
#pragma unroll 1
        for (int n = 0; n < Tile::ROWS * LANES_ACROSS / Tile::THREADS; n++) {
            const int i = n * Tile::THREADS + threadIdx.x;
            const int row = i / BLOCK_LANES % Tile::ROWS;
            const int across = i / (BLOCK_LANES * Tile::ROWS) * BLOCK_LANES + i % BLOCK_LANES;
            const int byte = across * LANE_COLUMNS * Tile::X_BYTES;
            const uint8_t* x = tile.slabs[byte / 128];
#pragma unroll 1
            for (int first = 0; first < CHUNKS; first += BLOCK_CHUNKS) {
                uint4 data[BLOCK_CHUNKS];
#pragma unroll
                for (int c = 0; c < BLOCK_CHUNKS; c++)
                    data[c] = *reinterpret_cast<const uint4*>(x + swizzled<128>(row, byte % 128 / 16 + first + c));
                uint32_t largest = In::largest(data[0]);
#pragma unroll
                for (int c = 1; c < BLOCK_CHUNKS; c++) largest = In::larger(largest, In::largest(data[c]));
#pragma unroll
                for (int distance = 1; distance < BLOCK_LANES; distance *= 2)
                    largest = In::larger(largest, __shfl_xor_sync(0xFFFFFFFF, largest, distance));
                const uint32_t scale = format.scale_of(In::magnitude_to_float(In::magnitude(largest)));
                if (across % BLOCK_LANES == 0)
                    scales.put(layout, row, (across * LANE_COLUMNS + first * In::VALUES) / BLOCK, scale);
                const float multiplier = format.multiplier(scale);

                uint32_t words[WORDS];
#pragma unroll
                for (int c = 0; c < BLOCK_CHUNKS; c++) encode_chunk(format, data[c], multiplier, words, c);
                const int element = across * LANE_COLUMNS + first * In::VALUES;
                uint8_t* target = q + swizzled<ROW_BYTES>(row, element / CHUNK_COLUMNS);
                if constexpr (LANE_BLOCK < CHUNK_COLUMNS) {
                    store_8_bytes(target + element % CHUNK_COLUMNS / Format::ELEMENTS_PER_BYTE, words);
                } else {
                    *reinterpret_cast<uint4*>(target) = make_uint4(words[0], words[1], words[2], words[3]);
                    if constexpr (WORDS == 8)
                        *reinterpret_cast<uint4*>(q + swizzled<ROW_BYTES>(row, element / CHUNK_COLUMNS + 1)) =
                            make_uint4(words[4], words[5], words[6], words[7]);
                }
            }
        }
    }

    // Encodes chunk c of x: its elements are whole words or half a word.
    static __device__ __forceinline__ void encode_chunk(const Format& format, uint4 chunk, float multiplier,
                                                        uint32_t (&words)[WORDS], int c) {
        constexpr int BYTES = In::VALUES / Format::ELEMENTS_PER_BYTE;
        uint32_t elements[BYTES < 4 ? 1 : BYTES / 4];
        format.template encode_loaded<In>(chunk, multiplier, elements);
        if constexpr (BYTES < 4) {
            words[c / 2] = c % 2 == 0 ? elements[0] : words[c / 2] | elements[0] << 16;
        } else {
#pragma unroll
            for (int w = 0; w < BYTES / 4; w++) words[c * BYTES / 4 + w] = elements[w];
        }
    }

    // A row of K elements may end after 8 of 16 bytes. TMA stores whole 16 bytes, so threads store the remainder.
    __device__ __forceinline__ void store(const TensorMap& map, uint8_t* target, int64_t target_stride, TileCorner corner,
                                          int64_t M, int64_t K) const {
        const int64_t whole = K / CHUNK_COLUMNS * CHUNK_COLUMNS;
        if (threadIdx.x == 0 && corner.column < whole) store_box(map, q, corner.column / Format::ELEMENTS_PER_BYTE, corner.row);
        const int64_t rest = whole - corner.column;
        if (K == whole || rest >= Tile::COLUMNS || rest < 0) return;
        for (int i = threadIdx.x; i < min(int64_t(Tile::ROWS), M - corner.row); i += Tile::THREADS)
            *reinterpret_cast<uint2*>(target + (corner.row + i) * target_stride + whole / Format::ELEMENTS_PER_BYTE) =
                *reinterpret_cast<const uint2*>(q + swizzled<ROW_BYTES>(i, rest / CHUNK_COLUMNS));
    }

    // Called by all threads, after a barrier.
    __device__ __forceinline__ void store_scales(Layout layout, Scale* target, int64_t stride, TileCorner corner, int64_t M,
                                                 int64_t K) const {
        const int columns = min(K - corner.column, int64_t(Tile::COLUMNS));
        scales.store(layout, {target, stride, corner.row, M, uint32_t(corner.column) / BLOCK, uint32_t((K + BLOCK - 1) / BLOCK),
                              (columns + BLOCK - 1) / BLOCK});
    }
};

// The destination of one direction.
template <class Scale>
struct Results {
    const TensorMap& map;
    uint8_t* q;
    int64_t q_stride;
    Scale* scales;
    int64_t scales_stride;
};

template <class X, class Format, class Tile>
struct BothSharedMemory {
    Tile x;
    alignas(1024) RowResults<X, Format, Tile> rows;
    alignas(1024) ColumnResults<X, Format, Tile> cols;
    alignas(8) Barrier loaded;
};

// Ends at the last byte: sizeof(Shared) is rounded up to a multiple of 1024.
template <class X, class Format, class Tile, class Shared = BothSharedMemory<X, Format, Tile>>
constexpr int BOTH_SHARED_BYTES = offsetof(Shared, loaded) + sizeof(Shared::loaded);

template <class X, class Traits, class Tile>
__device__ __forceinline__ void quantize_both(Layout layout, typename Traits::Argument format_argument, const TensorMap& x,
                                              Results<typename Traits::Type::Scale> rows,
                                              Results<typename Traits::Type::Scale> cols, int64_t M, int64_t K) {
    using Format = typename Traits::Type;
    using Groups = WholeMatrix<Format, Tile>;
    using Shared = BothSharedMemory<X, Format, Tile>;
    extern __shared__ __align__(1024) uint8_t memory[];
    Shared& shared = *reinterpret_cast<Shared*>(memory);

    let_next_kernel_launch();
    const TileCorner corner = tile_corner<Tile>(columns_end(layout, K));
    if (threadIdx.x == 0) initialise(&shared.loaded, 1);
    __syncwarp();
    wait_for_previous_kernel();
    if (threadIdx.x == 0) shared.x.load(x, corner.row, corner.column, &shared.loaded);
    Format format = Traits::make(format_argument, 0);
    format.prepare();
    __syncthreads();
    wait(&shared.loaded, 0);

    shared.rows.quantize(format, layout, shared.x);
    shared.cols.quantize(format, layout, shared.x);
    let_copies_see_shared_memory();
    __syncthreads();

    const Groups matrix = {cols.scales, cols.scales_stride, M};
    const auto assignment = matrix.assign(layout, corner.row / Tile::ROWS, K);
    shared.rows.store(rows.map, rows.q, rows.q_stride, corner, M, K);
    matrix.store(shared.cols, cols.map, cols.q, cols.q_stride, corner.column, K, assignment);
    shared.rows.store_scales(layout, rows.scales, rows.scales_stride, corner, M, K);
    shared.cols.store_scales(layout, assignment, corner.column, K);
    if (threadIdx.x == 0) wait_until_stores_have_read();
}

}  // namespace zoo
