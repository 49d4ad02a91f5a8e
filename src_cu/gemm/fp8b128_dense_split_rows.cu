// gemm.fp8b128.dense with tokens as the rows of wgmma and K shared by the CTAs of a cluster, each of which stores a part of the columns. Tiles
// next to each other may share their tokens.

#include "gemm/load/shared_tokens.cuh"
#include "gemm/pipeline/split_rows.cuh"
#include "gemm/schedule/tile_order.cuh"

namespace zoo {

using OwnTile =
    Fp8b128Tile<Variant::TOKENS, Variant::WEIGHTS, Variant::STAGES, Variant::WARPGROUPS, Variant::SWAPPED, Variant::OVERLAPPED>;
using Tile = MayShareTile<OwnTile, sharers<Variant>()>;
using Rows = EvenTiles<Tile>;
using From = MayShareOperands<Tile, Rows>;
using Order = MayShareOrder<Tile, Variant::SPLITS, Rows>;
using Way = SplitRows<Tile>;

}  // namespace zoo

#include "gemm/fp8b128_dense.cuh"
