// scales.ue8m0_words: float32 powers of two (R, C) -> their ue8m0 bytes, four columns a word, words (ceil(C / 4), R).
// See mn_major.cuh.

#include "common/variant.cuh"
#include "scales/mn_major.cuh"
#include "scales/power_of_two.cuh"

// Strides in elements.
extern "C" __global__ void __launch_bounds__(Variant::THREADS)
    ZOO_KERNEL(const uint32_t* scales, uint32_t* words, int64_t rows, int64_t columns, int64_t stride, int64_t words_stride) {
    zoo::let_next_kernel_launch();
    const zoo::Corner corner = zoo::corner_of_thread<Variant::THREADS>(columns);
    zoo::wait_for_previous_kernel();
    const int64_t rows_left = rows - corner.row, columns_left = columns - corner.column;
    if (rows_left <= 0 || columns_left <= 0) return;

    zoo::Square square;  // what lies past the last column is loaded as zero, the byte of padding
    zoo::load_lines(square, scales + corner.row * stride + corner.column, stride, rows_left, columns_left,
                    zoo::rows_are_aligned(scales, stride));
    zoo::Square packed;
#pragma unroll
    for (int row = 0; row < 4; row++) {
        packed[0][row] = 0;
#pragma unroll
        for (int column = 0; column < 4; column++) packed[0][row] |= zoo::e8m0_of_power_of_two(square[row][column]) << 8 * column;
    }
    zoo::store_lines(packed, words + corner.column / 4 * words_stride + corner.row, 0, 1, rows_left, true);
}
