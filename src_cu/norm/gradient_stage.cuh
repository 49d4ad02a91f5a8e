// The rows that a thread of norm.backward has in flight: its own cells of x, dy and dsum, in shared memory. Included by kernels/backward.cu.
//
// A thread copies what it reads itself (cp.async), so stages need no barrier. While one row is worked on, the next row is on its way:
//
//     stage 0    | x: cells 0 .. 3 | dy: cells 0 .. 3 | dsum: cells 0 .. 3 |      a cell: 16 bytes of each thread, side by side
//     stage 1    | ...             |                  |                    |
#pragma once

#include <cstdint>

#include "common/async_copy.cuh"
#include "norm/row_threads.cuh"

namespace zoo {

// The copies so far become a group.
__device__ __forceinline__ void close_group_of_copies() { asm volatile("cp.async.commit_group;" ::: "memory"); }

// Waits for all groups but the newest.
__device__ __forceinline__ void wait_for_older_copies() { asm volatile("cp.async.wait_group 1;" ::: "memory"); }

template <int THREADS>
struct GradientStages {
    static constexpr int STAGES = 2, CELLS = RowThreads<THREADS>::CELLS, PIECE = RowThreads<THREADS>::PIECE, BYTES = 2;

    enum Array { x, dy, dsum, ARRAYS };

    uint4 cells[STAGES][ARRAYS][CELLS][THREADS];

    // Copies this thread's cells of a row. `start`: the thread's first column of it. Zeros after `columns_left` columns.
    __device__ __forceinline__ void copy(int stage, Array array, const uint8_t* start, int columns_left) {
#pragma unroll
        for (int i = 0; i < CELLS; i++) {
            const void* source = start + i * PIECE * BYTES;
            copy_16_bytes(shared_address(&cells[stage][array][i][threadIdx.x]), source, i * PIECE < columns_left);
        }
    }
    __device__ __forceinline__ uint4 cell(int stage, Array array, int i) const { return cells[stage][array][i][threadIdx.x]; }
};

}  // namespace zoo
