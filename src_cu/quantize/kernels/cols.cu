// quantize.<format>.cols: x (M, K) -> q (K, M), and a scale for every block of a column of x. Made of:
//
//   common/formats.cuh             which format the dtypes of elements and scales choose
//   columns/columns.cuh            the pipeline, and which rows a tile has
//   columns/tile.cuh               how a tile of x comes to shared memory
//   columns/column_results.cuh     how a tile is quantised along M and stored transposed
//   scales/tile_scales.cuh         how the scales of a tile are stored
//   scales/scale_layout.cuh        the layouts of scales
//
// Memory-bound: speed needs many tiles in flight and stores of whole cache lines.

#include "common/formats.cuh"
#include "quantize/columns/columns.cuh"
#include "quantize/scales/scale_layout.cuh"

using Tile = zoo::Tile<Variant::x, Variant::ROWS, Variant::COLUMNS>;
using Traits = zoo::FormatOf<Variant::q, Variant::scales>;
using Groups = zoo::WholeMatrix<Traits::Type, Tile>;

namespace zoo {
constexpr int DYNAMIC_SHARED_BYTES = COLUMNS_SHARED_BYTES<Variant::x, ::Traits::Type, ::Tile>;
}  // namespace zoo

// q_stride in bytes; scales_stride as in scales/scale_layout.cuh.
extern "C" __global__ void __launch_bounds__(Tile::THREADS, Variant::CTAS) ZOO_KERNEL(ZOO_PARAMETERS) {
    zoo::quantize_cols<Variant::x, Traits, Tile>(zoo::layout_of<Groups::Scale>(plain), rule, x_map, q_map, q, q_stride, K,
                                                 Groups{scales, scales_stride, M});
}
