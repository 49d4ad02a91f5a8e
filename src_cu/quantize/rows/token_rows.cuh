// Quantises rows with one scale for a whole row (fp8token). Included by kernels/token_rows.cu and kernels/token_swiglu.cu.
//
// A row is read once. Its last 1024 columns a warp stay in registers until the row's largest magnitude is known.
//
//   a CTA     several rows side by side, with `warps_of_row` warps each; warps that are left over idle
//   a warp    1024 columns of its row an iteration (rows/row_share.cuh)
//
// A row that needs several iterations is read twice, except for the last iteration. The second read hits L2.
#pragma once

#include <cstdint>

#include "common/dependent_launch.cuh"
#include "common/global_memory.cuh"
#include "quantize/rows/row_share.cuh"

namespace zoo {

// Row i of q is row index[i] of x, or zeros where index[i] is negative. Without an index it is row i of x.
template <int THREADS, class Format, class Source>
__device__ __forceinline__ void quantize_token_rows(Format format, Source source, const int* index, uint8_t* q, float* scales,
                                                    int M, int K, int64_t q_stride, int warps_of_row, bool fragments) {
    using Share = RowShare<Format, Source>;
    using In = typename Source::In;
    constexpr int WARPS = THREADS / 32;
    static_assert(WARPS <= 32, "a lane for each warp");
    __shared__ uint32_t warp_maxima[WARPS];

    let_next_kernel_launch();
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const int row_of_cta = warp / warps_of_row, warp_of_row = warp % warps_of_row, rows_of_cta = WARPS / warps_of_row;
    const int64_t target = int64_t(blockIdx.x) * rows_of_cta + row_of_cta;
    const bool has_row = row_of_cta < rows_of_cta && target < M;
    const int first_column = warp_of_row * Share::COLUMNS + lane * Share::VALUES, step = warps_of_row * Share::COLUMNS;
    const int iterations = (K + step - 1) / step;
    wait_for_previous_kernel();
    const int64_t source_row = !has_row ? -1 : index == nullptr ? target : load_int(index + target);
    if (source_row >= 0) source.start_at(source_row, first_column);
    const Share share{source, lane, first_column, step, K, source_row >= 0};

    typename In::Cell cells[Share::CELLS];
    uint32_t largest = 0;
#pragma unroll 1
    for (int iteration = 0; iteration < iterations; iteration++) {
        share.load(iteration, cells);
#pragma unroll
        for (int i = 0; i < Share::CELLS; i++) largest = max(largest, In::magnitude(In::largest(cells[i])));
    }
    largest = __reduce_max_sync(0xFFFFFFFF, largest);
    if (warps_of_row > 1) {
        if (lane == 0) warp_maxima[warp] = largest;
        __syncthreads();
        largest = __reduce_max_sync(0xFFFFFFFF, warp_maxima[min(warp - warp_of_row + min(lane, warps_of_row - 1), WARPS - 1)]);
    }
    if (!has_row) return;
    const uint32_t scale = format.scale_of(In::magnitude_to_float(largest));
    const float multiplier = format.multiplier(scale);
    if (warp_of_row == 0 && lane == 0) scales[target] = __uint_as_float(scale);
#pragma unroll 1
    for (int iteration = iterations - 1; iteration >= 0; iteration--) {  // the cells of the last iteration are still loaded
        if (iteration < iterations - 1) share.load(iteration, cells);
        share.store(cells, format, multiplier, iteration, fragments, q + target * q_stride);
    }
}

}  // namespace zoo
