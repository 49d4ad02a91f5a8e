// The scales of a tile of results in shared memory, and how they are stored: ROWS rows of q with BLOCKS scales each.
// Included by columns/column_results.cuh and columns/both.cuh.
//
// The L2 cache charges a store of less than a 32-byte sector like a whole sector. So neighbouring threads store
// neighbouring bytes:
//
//   blocked    Shared memory has the layout of global memory (drawn in scales/scale_layout.cuh). For each 4 blocks, 128 rows
//              are 32 lines of 16 bytes; 64 rows are 32 half lines of 8 bytes. A thread stores a line or half line.
//   mn_major   The scales of a block are neighbours.
//   plain      A row has BLOCKS neighbouring scales. Tiles beside this one store the rest of a sector.
#pragma once

#include <cstdint>
#include <type_traits>

#include "common/variant.cuh"

namespace zoo {

// The destination of a tile's scales. `stride` is that of scales/scale_layout.cuh. Rows from rows_end on and blocks from
// blocks_end on do not exist, but blocked scales are padded. A scale that exists without elements in this tile is zero.
template <class Scale>
struct ScaleDestination {
    Scale* scales;
    int64_t stride;
    int64_t row, rows_end;
    uint32_t block, blocks_end;
    int valid_blocks;  // blocks of the tile that have elements
};

template <class Scale, int ROWS, int BLOCKS>
struct TileScales {
    static constexpr bool CAN_BE_BLOCKED = sizeof(Scale) == 1;
    static constexpr int COUNT = ROWS * BLOCKS;
    static constexpr int BANDS = ROWS / 32, LINE_BYTES = BANDS * 4;  // bytes of a line of blocked scales that the tile covers
    static_assert(!CAN_BE_BLOCKED || (ROWS == 64 || ROWS == 128) && BLOCKS % 4 == 0);

    alignas(16) Scale scales[COUNT];

    static __device__ __forceinline__ int index(Layout layout, int row, int block) {
        if (CAN_BE_BLOCKED && layout == Layout::blocked)
            return (block / 4 * 32 + row % 32) * LINE_BYTES + row / 32 * 4 + block % 4;
        return row * BLOCKS + block;
    }

    __device__ __forceinline__ void put(Layout layout, int row, int block, uint32_t scale) {
        scales[index(layout, row, block)] = scale;
    }

    // Called by all threads, after a barrier.
    __device__ __forceinline__ void store(Layout layout, const ScaleDestination<Scale>& to) const {
        const bool blocked = CAN_BE_BLOCKED && layout == Layout::blocked;
        const bool mn_major = !CAN_BE_BLOCKED && layout == Layout::mn_major;
        const int valid_rows = min(to.rows_end - to.row, int64_t(ROWS)), rows = blocked ? ROWS : valid_rows;
        const int blocks = min(int(blocked ? (to.blocks_end + 3) / 4 * 4 : to.blocks_end) - int(to.block), BLOCKS);
        const int64_t row_step = mn_major ? 1 : to.stride, block_step = mn_major ? to.stride : 1;
        Scale* first = to.scales;
        if (blocked) {
            first += to.row / 128 * to.stride + to.block / 4 * 512 + to.row % 128 / 32 * 4;
            if (to.valid_blocks == BLOCKS && valid_rows == ROWS && reinterpret_cast<uintptr_t>(first) % LINE_BYTES == 0) {
                using Line = std::conditional_t<BANDS == 4, uint4, uint2>;
                const int i = threadIdx.x;
                if (i < COUNT / LINE_BYTES) *reinterpret_cast<Line*>(first + i * 16) = reinterpret_cast<const Line*>(scales)[i];
                return;
            }
        } else {
            first += to.row * row_step + to.block * block_step;
        }
#pragma unroll 1
        for (int i = threadIdx.x; i < COUNT; i += blockDim.x) {
            int row = i / BLOCKS, block = i % BLOCKS;
            if (mn_major) row = i % ROWS, block = i / ROWS;
            int64_t at = row * row_step + block * block_step;
            if (blocked) {
                row = i / LINE_BYTES % 32 + i % LINE_BYTES / 4 * 32, block = i / (32 * LINE_BYTES) * 4 + i % 4;
                at = i / LINE_BYTES * 16 + i % LINE_BYTES;
            }
            if (row >= rows || block >= blocks) continue;
            const bool valid = row < valid_rows && block < to.valid_blocks;
            first[at] = valid ? scales[mn_major ? row * BLOCKS + block : i] : 0;
        }
    }
};

}  // namespace zoo
