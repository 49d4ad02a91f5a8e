// quantize.<format>.both: x (M, K) -> the results of quantize.<format>.rows and of quantize.<format>.cols, from one read
// of x.
//
// The format follows from the dtypes (common/formats.cuh), the directions are in both.cuh and cols.cuh, the tile that they
// read in tile.cuh, the layouts of the scales in scale_layout.cuh.

#include "common/formats.cuh"
#include "common/variant.cuh"
#include "quantize/both.cuh"

using Tile = zoo::Tile<Variant::x, Variant::ROWS, Variant::COLUMNS>;
using Of = zoo::FormatOf<Variant::q_rows, Variant::scales_rows>;
using Scale = Of::Type::Scale;

namespace zoo {
constexpr int DYNAMIC_SHARED_BYTES = BYTES_OF_BOTH<SharedOfBoth<Variant::x, ::Of::Type, ::Tile>>;
}  // namespace zoo

// Strides of q in bytes; those of scales as in scale_layout.cuh.
extern "C" __global__ void __launch_bounds__(Tile::THREADS, Variant::CTAS)
    ZOO_KERNEL(const __grid_constant__ zoo::TensorMap x, const __grid_constant__ zoo::TensorMap q_rows_map,
               const __grid_constant__ zoo::TensorMap q_cols_map, Of::Argument format, uint8_t* q_rows, Scale* scales_rows,
               uint8_t* q_cols, Scale* scales_cols, int64_t M, int64_t K, int64_t q_rows_stride, int64_t scales_rows_stride,
               int64_t q_cols_stride, int64_t scales_cols_stride, int64_t plain) {
    zoo::quantize_both<Variant::x, Of, Tile>(zoo::layout_of<Scale>(plain), format, x,
                                             {q_rows_map, q_rows, q_rows_stride, scales_rows, scales_rows_stride},
                                             {q_cols_map, q_cols, q_cols_stride, scales_cols, scales_cols_stride}, M, K);
}
