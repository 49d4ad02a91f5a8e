// A CTA's tile of x in shared memory, ROWS x COLUMNS, for the directions that need blocks along M.
//
// The copy engine brings x in slabs of 128 bytes of each row, and takes the elements away. So nothing waits in
// registers for memory: in flight are the tiles of all CTAs that fit into a multiprocessor's shared memory. What lies
// outside x arrives as zero, which changes no largest magnitude.
//
//               lane 0 1 2 ... 31       16-byte chunk c of row r lies at chunk c ^ r % 8 (the 128-byte swizzle), so both
//   slab, row 0      . . .     .        ways of reading touch every bank once: a warp 4 bytes a lane of one row, and 8
//             1      . . .     .        lanes the same 16-byte chunk of 8 rows.
//             ...
#pragma once

#include <cstdint>

#include "common/mbarrier.cuh"
#include "common/tensor_copy.cuh"
#include "common/variant.cuh"
#include "quantize/input.cuh"

namespace zoo {

// Where a 16-byte chunk lies, in bytes, in an array with rows of ROW_BYTES as the copy engine swizzles it.
template <int ROW_BYTES>
__device__ __forceinline__ int swizzled(int row, int chunk) {
    static_assert(ROW_BYTES == 128 || ROW_BYTES == 64 || ROW_BYTES == 32, "the swizzles of 128, 64 and 32 bytes");
    return row * ROW_BYTES + (chunk ^ row / (128 / ROW_BYTES) % (ROW_BYTES / 16)) * 16;
}

template <class X, int ROWS_, int COLUMNS_>
struct Tile {
    static constexpr int ROWS = ROWS_, COLUMNS = COLUMNS_;
    static constexpr int X_BYTES = 16 / Input<X>::VALUES;
    static constexpr int SLAB_COLUMNS = 128 / X_BYTES, SLABS = COLUMNS / SLAB_COLUMNS;
    static constexpr int THREADS = SLABS * ROWS;  // 128 bytes of x each
    static_assert(COLUMNS % SLAB_COLUMNS == 0 && ROWS % 128 == 0);
    static_assert(ROWS <= 256, "the most rows of a box");

    uint8_t slabs[SLABS][ROWS * 128];

    // By one thread.
    template <class Map>
    __device__ __forceinline__ void load(const Map& x, int row, int column, Barrier* barrier) {
        arrive_expecting_bytes(barrier, sizeof(slabs));
#pragma unroll
        for (int s = 0; s < SLABS; s++) load_box(slabs[s], x, (column + s * SLAB_COLUMNS) * X_BYTES, row, barrier);
    }

    // Makes rows [first, end) zero. By all threads, once the tile is there; others see it after a barrier.
    __device__ __forceinline__ void blank(int first, int end) {
#pragma unroll 1
        for (int i = first * 8 + threadIdx.x; i < end * 8; i += THREADS)
#pragma unroll
            for (int s = 0; s < SLABS; s++) *reinterpret_cast<uint4*>(slabs[s] + i * 16) = make_uint4(0, 0, 0, 0);
    }
};

struct TileCorner {
    int row, column;
};

// Of the CTA's tile: tiles follow each other along K, then along M. `columns` is how far they reach.
template <class Tile>
__device__ __forceinline__ TileCorner tile_corner(uint64_t columns) {
    const uint32_t across = (columns + Tile::COLUMNS - 1) / Tile::COLUMNS;
    return {int(blockIdx.x / across * Tile::ROWS), int(blockIdx.x % across * Tile::COLUMNS)};
}

// K as far as scales reach: blocked ones are padded to 128 rows, which of transposed results are columns of x.
__device__ __forceinline__ uint64_t columns_end(Layout layout, uint64_t K) {
    return layout == Layout::blocked ? (K + 127) / 128 * 128 : K;
}

}  // namespace zoo
