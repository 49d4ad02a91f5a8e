// scales.mn_major: float32 scales (R, C) -> (C, R). See mn_major.cuh.

#include "common/variant.cuh"
#include "scales/mn_major.cuh"

// Strides in scales.
extern "C" __global__ void __launch_bounds__(Variant::THREADS)
    ZOO_KERNEL(const uint32_t* scales, uint32_t* transposed, int64_t rows, int64_t columns, int64_t stride,
               int64_t transposed_stride) {
    zoo::let_next_kernel_launch();
    const zoo::Corner corner = zoo::corner_of_thread<Variant::THREADS>(columns);
    zoo::wait_for_previous_kernel();
    const int64_t rows_left = rows - corner.row, columns_left = columns - corner.column;
    if (rows_left <= 0 || columns_left <= 0) return;

    zoo::Square square;
    zoo::load_lines(square, scales + corner.row * stride + corner.column, stride, rows_left, columns_left,
                    zoo::rows_are_aligned(scales, stride));
    zoo::transpose(square);
    zoo::store_lines(square, transposed + corner.column * transposed_stride + corner.row, transposed_stride, columns_left,
                     rows_left, true);
}
