// Where the scale of a block along K is, and which pieces of x a warp reads so that its scales are neighbours. Included
// by the kernels that quantise a matrix (rows/split_blocks.cuh, rows/whole_blocks.cuh) and by all .cu files that choose a
// layout.
//
// A warp's share is LOADS pieces of PIECE columns:
//
//   corner(share, K)            its first row and column; a share whose row is rows_end or later does not exist
//   row(i), column(i)           piece i starts so many rows and columns after the corner
//   rows(), columns()           the extent of a share
//   offset(stride, row, column) where a scale is, for rows before rows_end and columns before columns_end
#pragma once

#include <cstdint>

#include "common/variant.cuh"

namespace zoo {

// Unsigned, so that a division by a power of two is a shift.
struct Corner {
    uint64_t row, column;
};

// What all layouts share. `stride` counts scales. Plain: from row to row. Blocked: from one row of tiles to the next.
// mn_major: from one block of K to the next.
template <class Self, class Scale>
struct ScaleLayoutBase {
    static __device__ __forceinline__ Corner corner(uint32_t share, uint64_t K) {
        const uint32_t across = (K + Self::COLUMNS - 1) / Self::COLUMNS;
        return {Self::first_row(share / across), uint64_t(share % across) * Self::COLUMNS};
    }
    static __device__ __forceinline__ void store(Scale* scales, int64_t stride, uint64_t row, uint64_t column, uint64_t K,
                                                 uint32_t scale) {
        if (column < Self::columns_end(K)) scales[Self::offset(stride, row, column)] = scale;
    }
};

template <Layout LAYOUT, int BLOCK, int LOADS, int PIECE, class Scale = uint8_t>
struct ScaleLayout;

// Row-major. A warp's pieces follow each other along a row, and so do their scales. With 2-byte input (8 blocks a piece)
// and LOADS = 4 a warp stores 32 bytes at once.
template <int BLOCK, int LOADS, int PIECE, class Scale>
struct ScaleLayout<Layout::plain, BLOCK, LOADS, PIECE, Scale>
    : ScaleLayoutBase<ScaleLayout<Layout::plain, BLOCK, LOADS, PIECE, Scale>, Scale> {
    static constexpr int ROWS = 1, COLUMNS = LOADS * PIECE;

    static __device__ __forceinline__ int rows() { return ROWS; }
    static __device__ __forceinline__ int columns() { return COLUMNS; }
    static __device__ __forceinline__ int row(int) { return 0; }
    static __device__ __forceinline__ int column(int piece) { return piece * PIECE; }

    static __device__ __forceinline__ uint64_t rows_end(uint64_t M) { return M; }
    static __device__ __forceinline__ uint64_t first_row(uint32_t share_row) { return share_row; }

    static __device__ __forceinline__ uint64_t columns_end(uint64_t K) { return K; }
    static __device__ __forceinline__ uint64_t offset(int64_t stride, uint64_t row, uint64_t column) {
        return row * stride + column / BLOCK;
    }
};

// Tiles of 128 rows x 4 blocks, 512 bytes each. Inside a tile:
//
//   byte      0..3        4..7        8..11       12..15
//   line 0    row 0       row 32      row 64      row 96        16 bytes a line: 4 rows x 4 blocks
//   line 1    row 1       row 33      row 65      row 97
//   ...                                                         32 lines
//
// A warp reads rows r, r+32, r+64 and r+96 of the same columns, so it owns whole lines. With LOADS = 8 it also reads the
// rows after these. Padding up to 128 rows and 4 blocks is written as well.
template <int BLOCK, int LOADS, int PIECE, class Scale>
struct ScaleLayout<Layout::blocked, BLOCK, LOADS, PIECE, Scale>
    : ScaleLayoutBase<ScaleLayout<Layout::blocked, BLOCK, LOADS, PIECE, Scale>, Scale> {
    static constexpr int ROWS = 128, COLUMNS = PIECE;
    static constexpr int LINES = LOADS / 4;
    static_assert(sizeof(Scale) == 1);
    static_assert(LOADS % 4 == 0 && 32 % LINES == 0, "a share is whole lines, a tile is whole shares");

    static __device__ __forceinline__ int rows() { return ROWS; }
    static __device__ __forceinline__ int columns() { return COLUMNS; }
    static __device__ __forceinline__ int row(int piece) { return piece % 4 * 32 + piece / 4; }
    static __device__ __forceinline__ int column(int) { return 0; }

    static __device__ __forceinline__ uint64_t rows_end(uint64_t M) { return (M + 127) / 128 * 128; }
    static __device__ __forceinline__ uint64_t first_row(uint32_t share_row) {
        constexpr uint32_t SHARES = 32 / LINES;  // shares of a tile, one below the other
        return uint64_t(share_row / SHARES) * 128 + share_row % SHARES * LINES;
    }

    static __device__ __forceinline__ uint64_t columns_end(uint64_t K) { return (K / BLOCK + 3) / 4 * 4 * BLOCK; }
    static __device__ __forceinline__ uint64_t offset(int64_t stride, uint64_t row, uint64_t column) {
        const uint64_t block = column / BLOCK;
        return row / 128 * stride + block / 4 * 512 + row % 32 * 16 + row % 128 / 32 * 4 + block % 4;
    }
};

// The transpose of plain: a row for every block of K. A warp's pieces are below each other, so their scales are neighbours.
// With LOADS = 4 and scales of 4 bytes a warp stores 16 bytes for every block of a piece.
template <int BLOCK, int LOADS, int PIECE, class Scale>
struct ScaleLayout<Layout::mn_major, BLOCK, LOADS, PIECE, Scale>
    : ScaleLayoutBase<ScaleLayout<Layout::mn_major, BLOCK, LOADS, PIECE, Scale>, Scale> {
    static constexpr int ROWS = LOADS, COLUMNS = PIECE;

    static __device__ __forceinline__ int rows() { return ROWS; }
    static __device__ __forceinline__ int columns() { return COLUMNS; }
    static __device__ __forceinline__ int row(int piece) { return piece; }
    static __device__ __forceinline__ int column(int) { return 0; }

    static __device__ __forceinline__ uint64_t rows_end(uint64_t M) { return M; }
    static __device__ __forceinline__ uint64_t first_row(uint32_t share_row) { return uint64_t(share_row) * LOADS; }

    static __device__ __forceinline__ uint64_t columns_end(uint64_t K) { return K; }
    static __device__ __forceinline__ uint64_t offset(int64_t stride, uint64_t row, uint64_t column) {
        return column / BLOCK * stride + row;
    }
};

// The launch chooses whether scales are plain. Otherwise one-byte scales are blocked and 4-byte scales are mn_major.
template <class Scale>
__device__ __forceinline__ constexpr Layout layout_of(int64_t plain) {
    return plain ? Layout::plain : sizeof(Scale) == 1 ? Layout::blocked : Layout::mn_major;
}

// The launch chooses between plain and the other layout; the cubin holds both.
template <int BLOCK, int LOADS, int PIECE, class Scale>
struct RuntimeScaleLayout {
    using Plain = ScaleLayout<Layout::plain, BLOCK, LOADS, PIECE, Scale>;
    using Other = ScaleLayout<sizeof(Scale) == 1 ? Layout::blocked : Layout::mn_major, BLOCK, LOADS, PIECE, Scale>;

    bool plain;

    __device__ __forceinline__ explicit RuntimeScaleLayout(Layout layout) : plain(layout == Layout::plain) {}

    __device__ __forceinline__ int rows() const { return plain ? Plain::ROWS : Other::ROWS; }
    __device__ __forceinline__ int columns() const { return plain ? Plain::COLUMNS : Other::COLUMNS; }
    __device__ __forceinline__ int row(int piece) const { return plain ? Plain::row(piece) : Other::row(piece); }
    __device__ __forceinline__ int column(int piece) const { return plain ? Plain::column(piece) : Other::column(piece); }

    __device__ __forceinline__ uint64_t rows_end(uint64_t M) const { return plain ? Plain::rows_end(M) : Other::rows_end(M); }
    __device__ __forceinline__ uint64_t columns_end(uint64_t K) const {
        return plain ? Plain::columns_end(K) : Other::columns_end(K);
    }
    __device__ __forceinline__ Corner corner(uint32_t share, uint64_t K) const {
        const uint32_t columns = plain ? Plain::COLUMNS : Other::COLUMNS;
        const uint32_t across = plain ? (K + Plain::COLUMNS - 1) / Plain::COLUMNS : (K + Other::COLUMNS - 1) / Other::COLUMNS;
        const uint32_t row = share / across;  // one division for both layouts: it dominates the cost of this function
        return {plain ? Plain::first_row(row) : Other::first_row(row), uint64_t(share % across) * columns};
    }
    __device__ __forceinline__ uint64_t offset(int64_t stride, uint64_t row, uint64_t column) const {
        return plain ? Plain::offset(stride, row, column) : Other::offset(stride, row, column);
    }
    __device__ __forceinline__ void store(Scale* scales, int64_t stride, uint64_t row, uint64_t column, uint64_t K,
                                          uint32_t scale) const {
        if (column < columns_end(K)) scales[offset(stride, row, column)] = scale;
    }
};

// The same choice without branches, for long kernels: the compiler would compile all code after a repeated branch twice.
// Rows and columns are masked, and each store reads an opaque flag of its own.
template <int BLOCK, int LOADS, int PIECE, class Scale>
struct MaskedScaleLayout : RuntimeScaleLayout<BLOCK, LOADS, PIECE, Scale> {
    using Runtime = RuntimeScaleLayout<BLOCK, LOADS, PIECE, Scale>;

    uint32_t columns_mask;  // all ones if scales are plain

    __device__ __forceinline__ explicit MaskedScaleLayout(Layout layout) : Runtime(layout), columns_mask(this->plain ? ~0u : 0u) {
        asm("" : "+r"(columns_mask));
    }

    __device__ __forceinline__ int row(int piece) const { return Runtime::Other::row(piece) & ~columns_mask; }
    __device__ __forceinline__ int column(int piece) const { return Runtime::Plain::column(piece) & columns_mask; }
    __device__ __forceinline__ void store(Scale* scales, int64_t stride, uint64_t row, uint64_t column, uint64_t K,
                                          uint32_t scale) const {
        uint32_t flag = columns_mask;
        asm volatile("" : "+r"(flag));
        Runtime layout = *this;
        layout.plain = flag != 0;
        layout.store(scales, stride, row, column, K, scale);
    }
};

}  // namespace zoo
