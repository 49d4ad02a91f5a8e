// gemm.fp8b128.dense of few tokens, which are the columns of wgmma. By way of few_tokens or few_tokens_pushed one tile for each CTA or cluster,
// whose CTAs share K; by way of few_tokens_in_turn tile after tile. Tiles next to each other may share their tokens.

#include <type_traits>

#include "gemm/load/shared_tokens.cuh"
#include "gemm/pipeline/few_tokens.cuh"
#include "gemm/schedule/tile_order.cuh"

namespace zoo {

using OwnTile =
    Fp8b128Tile<Variant::TOKENS, Variant::WEIGHTS, Variant::STAGES, Variant::WARPGROUPS, Variant::SWAPPED, Variant::OVERLAPPED>;
using Tile = MayShareTile<TileMadeTogether<OwnTile, Variant::SPLITS>, sharers<Variant>()>;
using Rows = FewOrEvenTiles<Tile, Tile::TOKENS>;
using From = MayShareOperands<Tile, Rows>;
using Way = ZOO_WAY<Tile>;
using OfCluster = MayShareOrder<Tile, Variant::SPLITS, Rows>;
using Order = std::conditional_t<OfOneTile<Way>, OfCluster, DenseOrder<Tile, Variant::BAND, Rows>>;

}  // namespace zoo

#include "gemm/fp8b128_dense.cuh"
