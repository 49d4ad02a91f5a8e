// gemm.fp8b128.dense: D (M, N) = A (M, K) B (N, K)^T, e4m3 with scales, one for 1 x 128 of A, whose rows are called tokens, and one
// for 128 x 128 of B, whose rows are called weights. Here: many tokens, tile after tile.
//
// A loading warpgroup brings tiles and scales into a ring of stages; one to three warpgroups multiply, promote and store. To be read in
// this order, one question each:
//
//     schedule/tile_order.cuh          who computes which tile, when
//     pipeline/fp8b128_tile.cuh        the tile and its ring of stages: what lies where, who arrives where
//     load/operands.cuh                where elements and scales come from
//     mainloop/fp8b128_mainloop.cuh    load, multiply, promote: the loop over K
//     epilogue/store_rows.cuh, sum.cuh from sums to D
//     pipeline/many_tokens.cuh         the way of putting them together; or tiles_ahead.cuh, where the tensor cores have the next tile's
//                                      work while a tile is stored
//     fp8b128_dense.cuh                the kernel and its arguments
//
// The table says by which way a variant is compiled. Those that need other orders: fp8b128_dense_rest.cu, _few.cu.

#include "gemm/pipeline/many_tokens.cuh"
#include "gemm/pipeline/tiles_ahead.cuh"
#include "gemm/schedule/tile_order.cuh"

namespace zoo {

using Tile =
    Fp8b128Tile<Variant::TOKENS, Variant::WEIGHTS, Variant::STAGES, Variant::WARPGROUPS, Variant::SWAPPED, Variant::OVERLAPPED>;
using Rows = EvenTiles<Tile>;
using From = EvenOperands<Tile>;
using Order = DenseOrder<Tile, Variant::BAND, Rows>;
using Way = ZOO_WAY<Tile>;

}  // namespace zoo

#include "gemm/fp8b128_dense.cuh"
