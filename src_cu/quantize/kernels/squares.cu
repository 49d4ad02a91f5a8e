// quantize.<format>.squares: x (E, N, K) -> q (E, N, K), optionally its transpose (E, K, N), and a scale for every square
// of each matrix. Made of:
//
//   common/formats.cuh             which format the dtypes of elements and scales choose
//   squares.cuh                    the kernel, from loads to both results
//   common/transpose_cells.cuh     how a lane transposes narrow elements in registers

#include "common/formats.cuh"
#include "quantize/squares.cuh"

using Traits = zoo::FormatOf<Variant::q, Variant::scales>;
using Tile = zoo::SquareTile<Variant::x, Traits::Type>;

// Strides in bytes. Matrix m uses entry `m * tensor_scale_step` of the tensor scales (NVFP4).
extern "C" __global__ void __launch_bounds__(Tile::THREADS, Variant::CTAS) ZOO_KERNEL(ZOO_PARAMETERS) {
    zoo::quantize_squares<Tile>(plain, Traits::make(rule, blockIdx.z * tensor_scale_step), {x, x_row, x_matrix},
                                {q, q_row, q_matrix}, {scales, scales_row, scales_matrix}, {q_cols, q_cols_row, q_cols_matrix},
                                {scales_cols, scales_cols_row, scales_cols_matrix}, N, K);
}
