// quantize.mxfp8.cols: x (M, K) -> q (K, M), one fp8 an element, and a ue8m0 scale for every 32 elements of a column of x.
//
// The format is in mxfp8.cuh, the direction in cols.cuh, the tile that it reads in tile.cuh, the layouts of the scales in
// scale_layout.cuh. Memory-bound: what counts is that many tiles are in flight, and that whole lines are stored.

#include "common/variant.cuh"
#include "quantize/cols.cuh"
#include "quantize/mxfp8.cuh"

// scales_stride, in bytes: plain, from row to row; blocked, from one row of tiles to the next.
extern "C" __global__ void __launch_bounds__(zoo::Tile<Variant::x, Variant::ROWS, Variant::COLUMNS>::THREADS, Variant::CTAS)
ZOO_KERNEL(const __grid_constant__ zoo::TensorMap x, const __grid_constant__ zoo::TensorMap q_map, uint8_t* q,
           uint8_t* scales, int64_t M, int64_t K, int64_t q_stride, int64_t scales_stride) {
    using Format = zoo::Mxfp8<Variant::q, Variant::rounding>;
    zoo::quantize_cols<Variant::x, Format, Variant::layout, Variant::ROWS, Variant::COLUMNS>(x, q_map, q, scales, M, K,
                                                                                             q_stride, scales_stride);
}
