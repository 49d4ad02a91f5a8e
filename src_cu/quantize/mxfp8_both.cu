// quantize.mxfp8.both: x (M, K) -> the results of quantize.mxfp8.rows and of quantize.mxfp8.cols, from one read of x.
//
// The format is in mxfp8.cuh, the directions in both.cuh and cols.cuh, the tile that they read in tile.cuh, the layouts
// of the scales in scale_layout.cuh.

#include "common/variant.cuh"
#include "quantize/both.cuh"
#include "quantize/mxfp8.cuh"

// The strides of scales, in bytes: plain, from row to row; blocked, from one row of tiles to the next.
extern "C" __global__ void __launch_bounds__(zoo::Tile<Variant::x, Variant::ROWS, Variant::COLUMNS>::THREADS, Variant::CTAS)
ZOO_KERNEL(const __grid_constant__ zoo::TensorMap x, const __grid_constant__ zoo::TensorMap q_rows_map, uint8_t* scales_rows,
           const __grid_constant__ zoo::TensorMap q_cols_map, uint8_t* q_cols, uint8_t* scales_cols, int64_t M, int64_t K,
           int64_t scales_rows_stride, int64_t q_cols_stride, int64_t scales_cols_stride) {
    using Format = zoo::Mxfp8<Variant::q_rows, Variant::rounding>;
    zoo::quantize_both<Variant::x, Format, Variant::layout, Variant::ROWS, Variant::COLUMNS>(
        x, q_rows_map, scales_rows, q_cols_map, q_cols, scales_cols, M, K, scales_rows_stride, q_cols_stride,
        scales_cols_stride);
}
