// norm.backward: dx (M, K) and partial sums of dweight, from dy, the normed x, the weight and rstd of each row. With n = x * rstd and
// g = dy * weight:
//
//     dx = rstd * (g - n * mean(g * n)) + dsum           a gradient of the residual stream, if there is one
//     dweight_parts[p] = sum over rows p, p + parts, p + 2 parts, ... of dy * n
//
// x, dy and dsum are read once. A row has a warp for every 1024 columns, as in the forward pass; these warps keep one partial sum in registers:
//
//     CTA 0   rows of warps 0 .. w - 1    0 | parts     | 2 parts     | ...   -> dweight_parts[0]
//             the next warps              1 | parts + 1 | 2 parts + 1 | ...   -> dweight_parts[1]
//     CTA 1   ...
//
//   norm/row_threads.cuh           which threads have which columns, how a row is added up
//   norm/gradient_stage.cuh        how the next row comes while one is worked on

#include "common/dependent_launch.cuh"
#include "norm/gradient_stage.cuh"
#include "norm/row_threads.cuh"

namespace zoo {
constexpr int DYNAMIC_SHARED_BYTES = sizeof(GradientStages<Variant::THREADS>);
}

// Strides count elements. dsum and dweight_parts may be null.
extern "C" __global__ void __launch_bounds__(Variant::THREADS, Variant::CTAS) ZOO_KERNEL(ZOO_PARAMETERS) {
    using namespace zoo;
    using In = Input<Variant::x>;
    using Threads = RowThreads<Variant::THREADS>;
    using Stages = GradientStages<Variant::THREADS>;
    constexpr int CELLS = Threads::CELLS, VALUES = Threads::VALUES, PIECE = Threads::PIECE, BYTES = 2;
    extern __shared__ __align__(16) uint8_t memory[];
    __shared__ float sums[2][Threads::WARPS];  // by turns, so that a row needs one barrier
    Stages& stages = *reinterpret_cast<Stages*>(memory);

    let_next_kernel_launch();
    const Threads threads(warps_of_row);
    const uint32_t first_of_cta = blockIdx.x * threads.rows_of_cta, part = first_of_cta + threads.row_of_cta;
    const bool has_part = threads.row_of_cta < threads.rows_of_cta && part < uint32_t(parts);
    const int column = threads.first_column(), columns_left = has_part ? K - column : 0;
    const uint32_t last_of_cta =
        uint32_t(M) - 1 - first_of_cta;  // rows of this CTA's first part: up to so many rows behind its first row
    wait_for_previous_kernel();

    float next_rstd = 0;
    auto fetch = [&](uint32_t row, int stage) {
        const int left = row < uint32_t(M) ? columns_left : 0;
        stages.copy(stage, Stages::x, x + (row * x_stride + column) * BYTES, left);
        stages.copy(stage, Stages::dy, dy + (row * dy_stride + column) * BYTES, left);
        if (dsum != nullptr) stages.copy(stage, Stages::dsum, dsum + (row * dsum_stride + column) * BYTES, left);
        close_group_of_copies();
        next_rstd = left > 0 ? rstd[row] : 0.0f;
    };

    float of_weight[CELLS][VALUES] = {};
    fetch(part, 0);
    int stage = 0;
#pragma unroll 1
    for (uint32_t before = 0; before <= last_of_cta; before += parts) {
        const uint32_t row = part + before;
        const float scale = next_rstd;
        const int left = row < uint32_t(M) ? columns_left : 0;
        fetch(row + parts, stage ^ 1);  // past the last row: an empty group
        wait_for_older_copies();

        float g[CELLS][VALUES], products[VALUES] = {};
#pragma unroll
        for (int i = 0; i < CELLS; i++) {
            float values[VALUES], gradients[VALUES], factors[VALUES];
            WeightCell<Variant::weight> cell = {};
            if (i * PIECE < left) cell.load(weight, column + i * PIECE);
            cell.to_float(factors);
            In::to_float(stages.cell(stage, Stages::x, i), values);
            In::to_float(stages.cell(stage, Stages::dy, i), gradients);
#pragma unroll
            for (int j = 0; j < VALUES; j++) {
                const float n = __fmul_rn(values[j], scale);
                g[i][j] = __fmul_rn(gradients[j], factors[j]);
                if (i * PIECE < left) {  // 0 * NaN is no 0
                    of_weight[i][j] = __fmaf_rn(gradients[j], n, of_weight[i][j]);
                    products[j] = __fmaf_rn(g[i][j], n, products[j]);
                }
            }
        }
        const float mean = __fdiv_rn(threads.sum(products, sums[stage]), float(K));
#pragma unroll
        for (int i = 0; i < CELLS; i++) {
            float values[VALUES], results[VALUES];
            In::to_float(stages.cell(stage, Stages::x, i), values);
#pragma unroll
            for (int j = 0; j < VALUES; j++)
                results[j] = __fmul_rn(__fmaf_rn(-__fmul_rn(values[j], scale), mean, g[i][j]), scale);
            if (dsum != nullptr) {
                float others[VALUES];
                In::to_float(stages.cell(stage, Stages::dsum, i), others);
#pragma unroll
                for (int j = 0; j < VALUES; j++) results[j] = __fadd_rn(results[j], others[j]);
            }
            if (i * PIECE < left)
                store_cell(dx + (row * dx_stride + column + i * PIECE) * BYTES, encode_cell<Variant::x>(results));
        }
        stage ^= 1;
    }
    wait_for_copies();
    if (dweight_parts == nullptr) return;
#pragma unroll
    for (int i = 0; i < CELLS; i++) {
        if (i * PIECE >= columns_left) continue;
        float* target = dweight_parts + int64_t(part) * K + column + i * PIECE;
        *reinterpret_cast<float4*>(target) = make_float4(of_weight[i][0], of_weight[i][1], of_weight[i][2], of_weight[i][3]);
        *reinterpret_cast<float4*>(target + 4) = make_float4(of_weight[i][4], of_weight[i][5], of_weight[i][6], of_weight[i][7]);
    }
}
