// experts.combine.backward with d_weights: each row of d_rows (R, N) that belongs to a token = its weight times the token's row of dy (T, N),
// and d_weights (T, top_k) = the dot product of dy and d. A CTA has one token, so no atomics are needed. Each column belongs to a fixed
// thread, and sums are added in a fixed order: bits depend on nothing but the token.
//
//     columns       thread 0: 0 ... 7, 2048 ... 2055, ...     thread 1: 8 ... 15, ...
//     dot product   a thread: its columns in order, by fused multiply-adds | a warp: lanes 16, 8, 4, 2, 1 apart | warps in order
//
//     combine/token_rows.cuh     Which rows and weights does a token have?

#include "common/dependent_launch.cuh"
#include "common/global_memory.cuh"
#include "common/half.cuh"
#include "common/input_values.cuh"
#include "experts/combine/token_rows.cuh"

// Strides count elements.
extern "C" __global__ void __launch_bounds__(Variant::THREADS) ZOO_KERNEL(ZOO_PARAMETERS) {
    using namespace zoo;
    constexpr int ROWS = Variant::ROWS, WARPS = Variant::THREADS / 32;
    static_assert(Variant::THREADS == 256, "the order of the sums is part of the rule");
    using Values = Input<Variant::dy>;
    __shared__ float sums_of_warps[ROWS][WARPS];
    let_next_kernel_launch();
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const int64_t token = blockIdx.x, first_choice = token * top_k;
    wait_for_previous_kernel();

#pragma unroll 1
    for (int first = 0; first < top_k; first += ROWS) {
        const TokenRows<ROWS> choices(rows + first_choice, weights == nullptr ? nullptr : weights + first_choice, first, top_k);
        float dot[ROWS] = {};
#pragma unroll 1
        for (int start = 0; start < N; start += CELL * Variant::THREADS) {  // whole warps take part in shuffles
            const int column = start + CELL * int(threadIdx.x);
            const int loaded_column = min(column, N - CELL);  // threads past the end load the last cell again
            const uint4 cell = load_16_bytes(dy + token * dy_stride + loaded_column);
            uint4 cells[ROWS];
#pragma unroll
            for (int j = 0; j < ROWS; j++) {
                const int row = choices.row[j];
                if (row >= 0) cells[j] = load_16_bytes(d + row * d_stride + loaded_column);
            }
            float gradient[CELL];
            Values::to_float(cell, gradient);
#pragma unroll
            for (int j = 0; j < ROWS; j++) {
                const int row = choices.row[j];
                const float weight = choices.weight(j);
                if (row < 0 || column >= N) continue;
                float values[CELL], result[CELL];
                Values::to_float(cells[j], values);
#pragma unroll
                for (int i = 0; i < CELL; i++) {
                    dot[j] = __fmaf_rn(gradient[i], values[i], dot[j]);
                    result[i] = __fmul_rn(weight, gradient[i]);
                }
                store_cell<Variant::dy>(d_rows + row * d_rows_stride + column, result);
            }
        }
#pragma unroll
        for (int j = 0; j < ROWS; j++) {
#pragma unroll
            for (int distance = 16; distance > 0; distance /= 2) dot[j] += __shfl_xor_sync(0xFFFFFFFF, dot[j], distance);
            if (lane == 0) sums_of_warps[j][warp] = dot[j];
        }
        __syncthreads();
        if (threadIdx.x < ROWS && first + int(threadIdx.x) < top_k) {
            float sum = sums_of_warps[threadIdx.x][0];
#pragma unroll
            for (int w = 1; w < WARPS; w++) sum += sums_of_warps[threadIdx.x][w];
            d_weights[first_choice + first + threadIdx.x] = sum;
        }
        __syncthreads();  // the next round overwrites the sums
    }
}
