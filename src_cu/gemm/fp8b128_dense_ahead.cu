// gemm.fp8b128.dense as in fp8b128_dense_many.cu, but that the tensor cores have the next tile's work while a tile is stored.

#include "gemm/pipeline/tiles_ahead.cuh"
#include "gemm/schedule/tile_order.cuh"

namespace zoo {

using Tile =
    Fp8b128Tile<Variant::TOKENS, Variant::WEIGHTS, Variant::STAGES, Variant::WARPGROUPS, Variant::SWAPPED, Variant::OVERLAPPED>;
using Rows = EvenTiles<Tile>;
using From = EvenOperands<Tile>;
using Order = DenseOrder<Tile, Variant::BAND, Rows>;
using Way = TilesAhead<Tile>;

}  // namespace zoo

#include "gemm/fp8b128_dense.cuh"
