// float32 scales (R, C) with C contiguous, to arrays with R contiguous: which square a thread moves. A warp takes 32 rows and 16 columns.
// Kernels scales.mn_major and scales.ue8m0_words use it.
#pragma once

#include <cstdint>

#include "common/dependent_launch.cuh"
#include "scales/square.cuh"

namespace zoo {

struct Corner {
    int64_t row, column;  // first row and column of a thread's square
};

template <int THREADS>
__device__ __forceinline__ Corner corner_of_thread(int64_t columns) {
    constexpr int ROWS = 4 * SQUARES_DOWN, COLUMNS = 4 * SQUARES_ACROSS;
    const uint32_t across = (columns + COLUMNS - 1) / COLUMNS;
    const uint32_t warp = blockIdx.x * (THREADS / 32) + threadIdx.x / 32;
    const int lane = threadIdx.x % 32;
    return {int64_t(warp / across) * ROWS + lane / SQUARES_ACROSS * 4,
            int64_t(warp % across) * COLUMNS + lane % SQUARES_ACROSS * 4};
}

}  // namespace zoo
