// scales.mn_major: float32 scales (R, C) to (C, R).
//
//     scales/square.cuh     how does a thread load, transpose and store a square?
//     scales/mn_major.cuh   which square does a thread move?

#include "scales/mn_major.cuh"

// Strides count scales.
extern "C" __global__ void __launch_bounds__(Variant::THREADS) ZOO_KERNEL(ZOO_PARAMETERS) {
    zoo::let_next_kernel_launch();
    const zoo::Corner corner = zoo::corner_of_thread<Variant::THREADS>(columns);
    zoo::wait_for_previous_kernel();
    const int64_t rows_left = rows - corner.row, columns_left = columns - corner.column;
    if (rows_left <= 0 || columns_left <= 0) return;

    zoo::Square square;
    zoo::load_lines(square, scales + corner.row * scales_stride + corner.column, scales_stride, rows_left, columns_left,
                    zoo::rows_are_aligned(scales, scales_stride));
    zoo::transpose(square);
    zoo::store_lines(square, transposed + corner.column * transposed_stride + corner.row, transposed_stride, columns_left,
                     rows_left, true);
}
