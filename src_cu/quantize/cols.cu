// quantize.<format>.cols: x (M, K) -> q (K, M), and a scale for every block of a column of x.
//
// The format follows from the dtypes (common/formats.cuh), the direction is in cols.cuh, the tile that it reads in tile.cuh,
// the layouts of the scales in scale_layout.cuh. Memory-bound: what counts is that many tiles are in flight, and that
// whole lines are stored.

#include "common/formats.cuh"
#include "common/variant.cuh"
#include "quantize/cols.cuh"

using Tile = zoo::Tile<Variant::x, Variant::ROWS, Variant::COLUMNS>;
using Of = zoo::FormatOf<Variant::q, Variant::scales>;
using Groups = zoo::WholeMatrix<Of::Type, Tile>;

namespace zoo {
constexpr int DYNAMIC_SHARED_BYTES = BYTES_OF_COLS<SharedOfCols<Variant::x, ::Of::Type, ::Tile>>;
}  // namespace zoo

// q_stride in bytes; scales_stride as in scale_layout.cuh.
extern "C" __global__ void __launch_bounds__(Tile::THREADS, Variant::CTAS)
    ZOO_KERNEL(const __grid_constant__ zoo::TensorMap x, const __grid_constant__ zoo::TensorMap q_map, Of::Argument format,
               uint8_t* q, Groups::Scale* scales, int64_t M, int64_t K, int64_t q_stride, int64_t scales_stride, int64_t plain) {
    zoo::quantize_cols<Variant::x, Of, Tile>(zoo::layout_of<Groups::Scale>(plain), format, x, q_map, q, q_stride, K,
                                             Groups{scales, scales_stride, M});
}
