// Quantises squares: BLOCK x BLOCK values share a scale, for both directions. Included by kernels/squares.cu.
//
// x (E, N, K) is read once. q (E, N, K) and the optional transpose q_cols (E, K, N) hold equal elements. A CTA quantises a tile
// of 128 x 128: whole squares of every format. A lane holds a patch of 8 rows x 8 columns in registers, a warp 16 rows. A
// load instruction covers rows r and r + 8: 256 bytes of each, with 2-byte input.
//
//   warp w:   lane  0  1  2 ... 15      rows 16 w     .. + 7       4-byte input: columns 4 * lane .. + 3 and, as the
//                  16 17 18 ... 31      rows 16 w + 8 .. + 15      other half of the patch, the columns 64 further on
//
//   1  Largest magnitudes: of the patch, of the lanes of a square (shuffles), of its warps (shared memory).
//   2  One thread computes the scale and the multiplier of a square.
//   3  Elements: rows go from registers to q. Patches are transposed in registers and go to shared memory.
//   4  Threads store 16 bytes of a column of x to q_cols, so that a warp writes whole cache lines.
#pragma once

#include <cstdint>

#include "common/dependent_launch.cuh"
#include "common/global_memory.cuh"
#include "common/input_values.cuh"
#include "common/transpose_cells.cuh"

namespace zoo {

// Matrices of one shape; strides in bytes. `start` of an absent optional argument is null.
template <class Byte>
struct Matrices {
    Byte* start;
    int64_t row_stride, matrix_stride;

    __device__ __forceinline__ Byte* row(int64_t matrix, int64_t row) const {
        return start + matrix * matrix_stride + row * row_stride;
    }
};

struct SquaresCorner {
    int64_t matrix, row, column;  // where the tile begins
    int rows_left, columns_left;  // rows and columns from there on, at most those of a tile
};

template <class X, class Format>
struct SquareTile {
    using In = Input<X>;
    using TileFormat = Format;
    using Scale = typename Format::Scale;
    static constexpr int TILE = 128, THREADS = 256, WARP_ROWS = 16, PATCH = 8;
    static constexpr int BLOCK = Format::BLOCK, SIDE = TILE / BLOCK;  // squares along a side of the tile
    static constexpr int CHUNKS = PATCH / In::VALUES,
                         CHUNK_COLUMNS = TILE / CHUNKS;  // 16-byte chunks of a patch's row; the columns between them
    static constexpr int PER_BYTE = Format::ELEMENTS_PER_BYTE;
    static constexpr int ROW_WORDS = PATCH / PER_BYTE / 4;  // words of a row of a patch, and of a column
    static constexpr int COLUMN_BYTES = TILE / PER_BYTE;    // bytes of a column of the tile
    static_assert(TILE % BLOCK == 0 && BLOCK % WARP_ROWS == 0);
    static_assert(CHUNKS * In::VALUES == PATCH && THREADS * PATCH * PATCH == TILE * TILE);

    alignas(16) uint8_t q_cols[TILE * COLUMN_BYTES];  // transposed: one column of x after the other
    alignas(16) Scale scales[SIDE][SIDE];
    alignas(16) Scale scales_cols[SIDE][SIDE];
    float multipliers[SIDE][SIDE];
    uint32_t magnitudes[TILE / WARP_ROWS][SIDE];

    // The first row of the lane's patch, and the tile's column that is column c of the patch.
    static __device__ __forceinline__ int first_row() { return threadIdx.x / 16 * PATCH; }
    static __device__ __forceinline__ int column(int c) {
        return c / In::VALUES * CHUNK_COLUMNS + threadIdx.x % 16 * In::VALUES + c % In::VALUES;
    }

    // 16 bytes of a column of the tile in q_cols. Neighbouring lanes write columns VALUES apart; the exclusive or moves
    // their chunks to different banks.
    __device__ __forceinline__ uint8_t* chunk_of_column(int column, int chunk) {
        return q_cols + column * COLUMN_BYTES + (chunk ^ column / In::VALUES % (COLUMN_BYTES / 16)) * 16;
    }

    static __device__ __forceinline__ SquaresCorner corner(int64_t N, int64_t K) {
        const int64_t row = int64_t(blockIdx.y) * TILE, column = int64_t(blockIdx.x) * TILE;
        return {blockIdx.z, row, column, int(min(N - row, int64_t(TILE))), int(min(K - column, int64_t(TILE)))};
    }

    // Values outside x are zero, which changes no largest magnitude.
    static __device__ __forceinline__ void load(const Matrices<const uint8_t>& stack, const SquaresCorner& corner,
                                                uint4 (&x)[PATCH][CHUNKS]) {
        constexpr int X_BYTES = 16 / In::VALUES;
        const uint8_t* row = stack.row(corner.matrix, corner.row + first_row()) + corner.column * X_BYTES;
#pragma unroll
        for (int r = 0; r < PATCH; r++, row += stack.row_stride)
#pragma unroll
            for (int j = 0; j < CHUNKS; j++) {
                x[r][j] = make_uint4(0, 0, 0, 0);
                if (first_row() + r < corner.rows_left && column(j * In::VALUES) < corner.columns_left)
                    x[r][j] = load_16_bytes(row + column(j * In::VALUES) * X_BYTES);
            }
    }

    __device__ __forceinline__ void find_magnitudes(const uint4 (&x)[PATCH][CHUNKS]) {
        constexpr int LANES = BLOCK / In::VALUES < 16 ? BLOCK / In::VALUES : 16;  // lanes of a square, side by side
        constexpr int SEPARATE = BLOCK <= CHUNK_COLUMNS ? CHUNKS : 1;             // chunks that belong to different squares
        uint32_t largest[CHUNKS];
#pragma unroll
        for (int j = 0; j < CHUNKS; j++) {
            largest[j] = In::largest(x[0][j]);
#pragma unroll
            for (int r = 1; r < PATCH; r++) largest[j] = In::larger(largest[j], In::largest(x[r][j]));
        }
#pragma unroll
        for (int j = SEPARATE; j < CHUNKS; j++) largest[0] = In::larger(largest[0], largest[j]);
#pragma unroll
        for (int j = 0; j < SEPARATE; j++) {
#pragma unroll
            for (int distance = 1; distance < LANES; distance *= 2)
                largest[j] = In::larger(largest[j], __shfl_xor_sync(0xFFFFFFFF, largest[j], distance));
            largest[j] = In::larger(largest[j], __shfl_xor_sync(0xFFFFFFFF, largest[j], 16));
            if (threadIdx.x % 32 < 16 && threadIdx.x % LANES == 0)
                magnitudes[threadIdx.x / 32][column(j * In::VALUES) / BLOCK] = In::magnitude(largest[j]);
        }
    }

    // Called after a barrier. Squares outside x have scale 0, like padding.
    __device__ __forceinline__ void find_scales(const Format& format, const SquaresCorner& corner) {
        constexpr int WARPS = BLOCK / WARP_ROWS;  // warps of a square
        const int row = threadIdx.x / SIDE, column = threadIdx.x % SIDE;
        if (row >= SIDE) return;
        uint32_t magnitude = 0;
#pragma unroll
        for (int w = 0; w < WARPS; w++) magnitude = max(magnitude, magnitudes[row * WARPS + w][column]);
        const uint32_t scale = format.scale_of(In::magnitude_to_float(magnitude));
        multipliers[row][column] = format.multiplier(scale);
        const bool inside = row * BLOCK < corner.rows_left && column * BLOCK < corner.columns_left;
        scales[row][column] = scales_cols[column][row] = inside ? scale : 0;
    }

    // words[r] is row r of the patch.
    __device__ __forceinline__ void encode(const Format& format, const uint4 (&x)[PATCH][CHUNKS],
                                           uint32_t (&words)[PATCH][ROW_WORDS]) const {
        constexpr int CHUNK_BYTES = In::VALUES / PER_BYTE, WORDS = CHUNK_BYTES < 4 ? 1 : CHUNK_BYTES / 4;
        float multiplier[CHUNKS];
#pragma unroll
        for (int j = 0; j < CHUNKS; j++) multiplier[j] = multipliers[first_row() / BLOCK][column(j * In::VALUES) / BLOCK];
#pragma unroll
        for (int r = 0; r < PATCH; r++) {
            uint32_t chunk[CHUNKS][WORDS];
#pragma unroll
            for (int j = 0; j < CHUNKS; j++) format.template encode_loaded<In>(x[r][j], multiplier[j], chunk[j]);
            if constexpr (CHUNK_BYTES < 4) {
                words[r][0] = __byte_perm(chunk[0][0], chunk[1][0], 0x5410);
            } else {
#pragma unroll
                for (int w = 0; w < ROW_WORDS; w++) words[r][w] = chunk[w / WORDS][w % WORDS];
            }
        }
    }

    static __device__ __forceinline__ void store_rows(const uint32_t (&words)[PATCH][ROW_WORDS], const Matrices<uint8_t>& q,
                                                      const SquaresCorner& corner) {
        uint8_t* row = q.row(corner.matrix, corner.row + first_row()) + corner.column / PER_BYTE;
#pragma unroll
        for (int r = 0; r < PATCH; r++, row += q.row_stride)
#pragma unroll
            for (int j = 0; j < CHUNKS; j++) {
                if (first_row() + r >= corner.rows_left || column(j * In::VALUES) >= corner.columns_left) continue;
                uint8_t* target = row + column(j * In::VALUES) / PER_BYTE;
                if constexpr (In::VALUES / PER_BYTE == 8)
                    store_8_bytes(target, words[r]);
                else if constexpr (In::VALUES / PER_BYTE == 4)
                    *reinterpret_cast<uint32_t*>(target) = words[r][j];
                else
                    *reinterpret_cast<uint16_t*>(target) = words[r][0] >> 16 * j;
            }
    }

    __device__ __forceinline__ void transpose(const uint32_t (&words)[PATCH][ROW_WORDS]) {
        constexpr int CELLS = 4 * PER_BYTE,
                      ACROSS = PATCH / CELLS;  // elements of a word; CELLS x CELLS matrices along a side of the patch
        constexpr int BYTES = PATCH / PER_BYTE;
        uint32_t columns[PATCH][ROW_WORDS];
#pragma unroll
        for (int down = 0; down < ACROSS; down++)
#pragma unroll
            for (int across = 0; across < ACROSS; across++) {
                uint32_t cells[CELLS];
#pragma unroll
                for (int i = 0; i < CELLS; i++) cells[i] = words[down * CELLS + i][across];
                transpose_cells(cells);
#pragma unroll
                for (int i = 0; i < CELLS; i++) columns[across * CELLS + i][down] = cells[i];
            }
        const int byte = first_row() / PER_BYTE;
#pragma unroll
        for (int c = 0; c < PATCH; c++) {
            uint8_t* target = chunk_of_column(column(c), byte / 16) + byte % 16;
            if constexpr (BYTES == 8)
                store_8_bytes(target, columns[c]);
            else
                *reinterpret_cast<uint32_t*>(target) = columns[c][0];
        }
    }

    // Called after a barrier. A row of q_cols is a column of x; its last chunk may have fewer than 16 bytes.
    __device__ __forceinline__ void store_columns(const Matrices<uint8_t>& q, const SquaresCorner& corner) {
        constexpr int ACROSS = COLUMN_BYTES / 16, ELEMENTS = 16 * PER_BYTE;
        uint8_t* first = q.row(corner.matrix, corner.column) + corner.row / PER_BYTE;
#pragma unroll
        for (int n = 0; n < TILE * ACROSS / THREADS; n++) {
            const int i = n * THREADS + threadIdx.x, column = i / ACROSS, chunk = i % ACROSS;
            const int left = corner.rows_left - chunk * ELEMENTS;
            if (column >= corner.columns_left || left <= 0) continue;
            const uint8_t* source = chunk_of_column(column, chunk);
            uint8_t* target = first + column * q.row_stride + chunk * 16;
            if (left >= ELEMENTS)
                *reinterpret_cast<uint4*>(target) = *reinterpret_cast<const uint4*>(source);
            else
#pragma unroll 1
                for (int b = 0; b < (left + PER_BYTE - 1) / PER_BYTE; b++) target[b] = source[b];
        }
    }

    // Stores the scales of one direction, after a barrier. Their address may be unaligned. The tile begins at first_row and first_column of that
    // direction's elements.
    //
    //   plain      one scale for a square
    //   blocked    the square's scale for each of its rows (drawn in scales/scale_layout.cuh), stored as single bytes
    static __device__ __forceinline__ void store_scales(bool plain, const Scale (&scales)[SIDE][SIDE],
                                                        const Matrices<uint8_t>& target, int64_t matrix, int64_t first_row,
                                                        int64_t first_column, int rows_left, int columns_left) {
        const int blocks_left = (columns_left + BLOCK - 1) / BLOCK;
        if (plain) {
            const int row = threadIdx.x / SIDE, block = threadIdx.x % SIDE;
            if (row < SIDE && row * BLOCK < rows_left && block < blocks_left)
                reinterpret_cast<Scale*>(target.row(matrix, first_row / BLOCK + row))[first_column / BLOCK + block] =
                    scales[row][block];
        } else if constexpr (sizeof(Scale) == 1) {
            static_assert(SIDE % 4 == 0);
            uint8_t* tiles = target.row(matrix, first_row / TILE) + first_column / BLOCK / 4 * 512;
            // Byte n of a thread is in scale tile n / 2, in its lines 0 to 15 or 16 to 31. `rows` selects the square.
            const int line = threadIdx.x / 16, band = threadIdx.x / 4 % 4, block = threadIdx.x % 4;
#pragma unroll
            for (int n = 0; n < SIDE / 2; n++) {
                const int rows = band * 32 + n % 2 * 16;
                if (n / 2 * 4 < blocks_left)
                    tiles[n * THREADS + threadIdx.x] = rows + line < rows_left ? scales[rows / BLOCK][n / 2 * 4 + block] : 0;
            }
        }
    }
};

// The kernel. Strides of scales: plain, from row to row; blocked, from one row of tiles to the next.
template <class Tile>
__device__ __forceinline__ void quantize_squares(bool plain, typename Tile::TileFormat format, Matrices<const uint8_t> x,
                                                 Matrices<uint8_t> q, Matrices<uint8_t> scales, Matrices<uint8_t> q_cols,
                                                 Matrices<uint8_t> scales_cols, int64_t N, int64_t K) {
    __shared__ Tile tile;

    let_next_kernel_launch();
    const SquaresCorner corner = Tile::corner(N, K);
    wait_for_previous_kernel();
    uint4 data[Tile::PATCH][Tile::CHUNKS];
    Tile::load(x, corner, data);
    format.prepare();

    tile.find_magnitudes(data);
    __syncthreads();
    tile.find_scales(format, corner);
    __syncthreads();

    uint32_t words[Tile::PATCH][Tile::ROW_WORDS];
    tile.encode(format, data, words);
    Tile::store_rows(words, q, corner);
    Tile::store_scales(plain, tile.scales, scales, corner.matrix, corner.row, corner.column, corner.rows_left,
                       corner.columns_left);
    if (q_cols.start == nullptr) return;

    tile.transpose(words);
    __syncthreads();
    tile.store_columns(q_cols, corner);
    Tile::store_scales(plain, tile.scales_cols, scales_cols, corner.matrix, corner.column, corner.row, corner.columns_left,
                       corner.rows_left);
}

}  // namespace zoo
