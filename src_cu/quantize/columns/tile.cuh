// A CTA's tile of x in shared memory, ROWS x COLUMNS. Included by columns/*.cuh, for blocks along M.
//
// TMA loads x in slabs of 128 bytes of each row and stores the elements. So no registers wait for memory: the tiles of all
// CTAs that fit into an SM's shared memory are in flight. TMA fills rows and columns outside x with zeros, which change no
// largest magnitude.
//
//               lane 0 1 2 ... 31       The 128-byte swizzle puts 16-byte chunk c of row r at chunk c ^ r % 8. So both ways of
//   slab, row 0      . . .     .        reading use every bank once: a warp that reads 4 bytes a lane of one row, and 8 lanes
//             1      . . .     .        that read the same chunk of 8 rows.
//             ...
#pragma once

#include <cstdint>

#include "common/input_values.cuh"
#include "common/mbarrier.cuh"
#include "common/tensor_copy.cuh"
#include "common/variant.cuh"

namespace zoo {

// The byte offset of a 16-byte chunk in an array with rows of ROW_BYTES, under the swizzle of TMA.
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
    static constexpr int THREADS = SLABS * ROWS;  // one for each 128 bytes of x
    static_assert(COLUMNS % SLAB_COLUMNS == 0 && ROWS % 128 == 0);
    static_assert(ROWS <= 256, "the most rows of a box");

    uint8_t slabs[SLABS][ROWS * 128];

    // Called by one thread.
    template <class Map>
    __device__ __forceinline__ void load(const Map& x, int row, int column, Barrier* barrier) {
        arrive_expecting_bytes(barrier, sizeof(slabs));
#pragma unroll
        for (int s = 0; s < SLABS; s++) load_box(slabs[s], x, (column + s * SLAB_COLUMNS) * X_BYTES, row, barrier);
    }

    // Zeroes rows [first, end). Called by all threads after the load; other threads see the zeros after a barrier.
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

// The first row and column of the CTA's tile. Tiles follow each other along K up to `columns`, then along M.
template <class Tile>
__device__ __forceinline__ TileCorner tile_corner(uint64_t columns) {
    const uint32_t across = (columns + Tile::COLUMNS - 1) / Tile::COLUMNS;
    return {int(blockIdx.x / across * Tile::ROWS), int(blockIdx.x % across * Tile::COLUMNS)};
}

// The end of the columns that have scales. Blocked scales are padded to 128 rows, which are columns of x in the transposed
// result.
__device__ __forceinline__ uint64_t columns_end(Layout layout, uint64_t K) {
    return layout == Layout::blocked ? (K + 127) / 128 * 128 : K;
}

}  // namespace zoo
