// quantize.<format>.both: x (M, K) -> the results of quantize.<format>.rows and quantize.<format>.cols, from one read of x.
// Made of:
//
//   common/formats.cuh             which format the dtypes of elements and scales choose
//   columns/tile.cuh               how a tile of x comes to shared memory
//   columns/both.cuh               the pipeline; how a tile is quantised along K
//   columns/column_results.cuh     how a tile is quantised along M and stored transposed
//   scales/tile_scales.cuh         how the scales of a tile are stored
//   scales/scale_layout.cuh        the layouts of scales
//   columns/columns.cuh            where the results of a tile go (WholeMatrix)

#include "common/formats.cuh"
#include "quantize/columns/both.cuh"
#include "quantize/scales/scale_layout.cuh"

using Tile = zoo::Tile<Variant::x, Variant::ROWS, Variant::COLUMNS>;
using Traits = zoo::FormatOf<Variant::q_rows, Variant::scales_rows>;
using Scale = Traits::Type::Scale;

namespace zoo {
constexpr int DYNAMIC_SHARED_BYTES = BOTH_SHARED_BYTES<Variant::x, ::Traits::Type, ::Tile>;
}  // namespace zoo

// Strides of q in bytes; strides of scales as in scales/scale_layout.cuh.
extern "C" __global__ void __launch_bounds__(Tile::THREADS, Variant::CTAS) ZOO_KERNEL(ZOO_PARAMETERS) {
    zoo::quantize_both<Variant::x, Traits, Tile>(zoo::layout_of<Scale>(plain), rule, x,
                                                 {q_rows_map, q_rows, q_rows_stride, scales_rows, scales_rows_stride},
                                                 {q_cols_map, q_cols, q_cols_stride, scales_cols, scales_cols_stride}, M, K);
}
