// scales.ue8m0_words: float32 powers of two (R, C) to their ue8m0 bytes, four columns in a word: words (ceil(C / 4), R).
//
//     scales/square.cuh     how does a thread load and store a square?
//     scales/mn_major.cuh   which square does a thread move?
//     common/e8m0.cuh       which byte is a power of two?

#include "common/e8m0.cuh"
#include "scales/mn_major.cuh"

// Strides count scales or words.
extern "C" __global__ void __launch_bounds__(Variant::THREADS) ZOO_KERNEL(ZOO_PARAMETERS) {
    zoo::let_next_kernel_launch();
    const zoo::Corner corner = zoo::corner_of_thread<Variant::THREADS>(columns);
    zoo::wait_for_previous_kernel();
    const int64_t rows_left = rows - corner.row, columns_left = columns - corner.column;
    if (rows_left <= 0 || columns_left <= 0) return;

    zoo::Square square;  // columns beyond the last are loaded as zero, the byte of padding
    zoo::load_lines(square, scales + corner.row * scales_stride + corner.column, scales_stride, rows_left, columns_left,
                    zoo::rows_are_aligned(scales, scales_stride));
    zoo::Square packed;
#pragma unroll
    for (int row = 0; row < 4; row++) {
        packed[0][row] = 0;
#pragma unroll
        for (int column = 0; column < 4; column++) packed[0][row] |= zoo::e8m0_of_power_of_two(square[row][column]) << 8 * column;
    }
    zoo::store_lines(packed, words + corner.column / 4 * words_stride + corner.row, 0, 1, rows_left, true);
}
