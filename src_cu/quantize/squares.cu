// quantize.<format>.squares: x (E, N, K) -> q (E, N, K) and, where it is asked for, its transpose (E, K, N), and a scale for
// every square of each matrix.
//
// The format follows from the dtypes (common/formats.cuh); everything else is in squares.cuh.

#include "common/formats.cuh"
#include "common/variant.cuh"
#include "quantize/squares.cuh"

using Of = zoo::FormatOf<Variant::q, Variant::scales>;
using Tile = zoo::Squares<Variant::x, Of::Type>;

// Strides in bytes. NVFP4's tensor scale of a matrix is entry `matrix * entry_step` of those given.
extern "C" __global__ void __launch_bounds__(Tile::THREADS, Variant::CTAS)
    ZOO_KERNEL(const uint8_t* x, Of::Argument format, int64_t entry_step, uint8_t* q, uint8_t* scales, uint8_t* q_cols,
               uint8_t* scales_cols, int64_t N, int64_t K, int64_t x_row, int64_t x_matrix, int64_t q_row, int64_t q_matrix,
               int64_t scales_row, int64_t scales_matrix, int64_t q_cols_row, int64_t q_cols_matrix, int64_t scales_cols_row,
               int64_t scales_cols_matrix, int64_t plain) {
    zoo::quantize_squares<Tile>(plain, Of::make(format, blockIdx.z * entry_step), {x, x_row, x_matrix}, {q, q_row, q_matrix},
                                {scales, scales_row, scales_matrix}, {q_cols, q_cols_row, q_cols_matrix},
                                {scales_cols, scales_cols_row, scales_cols_matrix}, N, K);
}
