// experts.combine.backward without d_weights: each row of d_rows (R, N) that belongs to a token = its weight times the token's row of dy (T, N).
// A warp has a piece of 256 columns of one token: it loads the piece once and stores it to all rows of the token.
//
//     combine/token_rows.cuh     Which rows and weights does a token have?

#include "common/dependent_launch.cuh"
#include "common/global_memory.cuh"
#include "common/half.cuh"
#include "common/input_values.cuh"
#include "experts/combine/token_rows.cuh"

// Strides count elements. `pieces`: of 256 columns in a row.
extern "C" __global__ void __launch_bounds__(Variant::THREADS) ZOO_KERNEL(ZOO_PARAMETERS) {
    using namespace zoo;
    constexpr int ROWS = Variant::ROWS;
    let_next_kernel_launch();
    const uint32_t task = blockIdx.x * (Variant::THREADS / 32) + threadIdx.x / 32;
    const uint32_t token = task / uint32_t(pieces), piece = task % uint32_t(pieces);
    wait_for_previous_kernel();
    if (token >= uint32_t(tokens)) return;
    const int column = piece * (32 * CELL) + threadIdx.x % 32 * CELL;
    const int64_t first_choice = int64_t(token) * top_k;

    float gradient[CELL];
    const int loaded_column = min(column, N - CELL);  // lanes past the end load the last cell again
    Input<Variant::dy>::to_float(load_16_bytes(dy + token * dy_stride + loaded_column), gradient);
#pragma unroll 1
    for (int first = 0; first < top_k; first += ROWS) {
        const TokenRows<ROWS> choices(rows + first_choice, weights == nullptr ? nullptr : weights + first_choice, first, top_k);
#pragma unroll
        for (int j = 0; j < ROWS; j++) {
            const int row = choices.row[j];
            const float weight = choices.weight(j);
            if (row < 0 || column >= N) continue;
            float values[CELL];
#pragma unroll
            for (int i = 0; i < CELL; i++) values[i] = __fmul_rn(weight, gradient[i]);
            store_cell<Variant::dy>(d_rows + row * d_rows_stride + column, values);
        }
    }
}
