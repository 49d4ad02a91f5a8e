// experts.combine: y (T, N) = the sum of each token's rows of d (R, N), times their weights, plus a residual. The kernel only moves memory:
// each row of d is read once. A warp has CELLS pieces of 256 columns of one token, and loads them from ROWS rows before it adds any.
//
//     warp      token t, columns c ... c + 256 CELLS
//     d         row rows[t, 0]   |................|       all loads of ROWS rows are in flight
//               row rows[t, 1]   |................|
//               ...                      |                sums in f32, in the order of choices
//     y         row t            |................|
//
//     combine/token_rows.cuh     Which rows and weights does a token have?

#include "common/dependent_launch.cuh"
#include "common/global_memory.cuh"
#include "common/half.cuh"
#include "common/input_values.cuh"
#include "experts/combine/token_rows.cuh"

// Strides count elements. `pieces`: of 256 CELLS columns in a row.
extern "C" __global__ void __launch_bounds__(Variant::THREADS) ZOO_KERNEL(ZOO_PARAMETERS) {
    using namespace zoo;
    constexpr int ROWS = Variant::ROWS, CELLS = Variant::CELLS;
    using Values = Input<Variant::d>;
    let_next_kernel_launch();
    const uint32_t task = blockIdx.x * (Variant::THREADS / 32) + threadIdx.x / 32;
    const uint32_t token = task / uint32_t(pieces), piece = task % uint32_t(pieces);
    wait_for_previous_kernel();
    if (token >= uint32_t(tokens)) return;
    const int first_column = piece * (32 * CELL * CELLS) + threadIdx.x % 32 * CELL;
    auto column = [&](int c) { return first_column + 32 * CELL * c; };
    auto loaded_column = [&](int c) { return min(column(c), N - CELL); };  // lanes past the end load the last cell again
    const int64_t first_choice = int64_t(token) * top_k;

    uint4 added[CELLS];
    if (residual != nullptr) {
#pragma unroll
        for (int c = 0; c < CELLS; c++) added[c] = load_16_bytes(residual + token * residual_stride + loaded_column(c));
    }
    float sum[CELLS][CELL] = {};
#pragma unroll 1
    for (int first = 0; first < top_k; first += ROWS) {
        const TokenRows<ROWS> choices(rows + first_choice, weights == nullptr ? nullptr : weights + first_choice, first, top_k);
        uint4 cells[ROWS][CELLS];
#pragma unroll
        for (int j = 0; j < ROWS; j++) {
            const int row = choices.row[j];
#pragma unroll
            for (int c = 0; c < CELLS; c++)
                if (row >= 0) cells[j][c] = load_16_bytes(d + row * d_stride + loaded_column(c));
        }
#pragma unroll
        for (int j = 0; j < ROWS; j++) {
            const int row = choices.row[j];
            const float weight = choices.weight(j);
            if (row < 0) continue;
#pragma unroll
            for (int c = 0; c < CELLS; c++) {
                float values[CELL];
                Values::to_float(cells[j][c], values);
#pragma unroll
                for (int i = 0; i < CELL; i++) sum[c][i] = __fadd_rn(sum[c][i], __fmul_rn(weight, values[i]));
            }
        }
    }
#pragma unroll
    for (int c = 0; c < CELLS; c++) {
        if (column(c) >= N) continue;
        if (residual != nullptr) {
            float values[CELL];
            Values::to_float(added[c], values);
#pragma unroll
            for (int i = 0; i < CELL; i++) sum[c][i] = __fadd_rn(sum[c][i], values[i]);
        }
        store_cell<Variant::d>(y + token * y_stride + column(c), sum[c]);
    }
}
