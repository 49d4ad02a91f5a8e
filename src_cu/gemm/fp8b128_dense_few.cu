// gemm.fp8b128.dense of few tokens, which are the columns of wgmma: one tile for each CTA or cluster, whose CTAs share K; or, IN_TURN, tile
// after tile. Tiles next to each other may share their tokens.

#include <type_traits>

#include "gemm/load/shared_tokens.cuh"
#include "gemm/pipeline/few_tokens.cuh"
#include "gemm/schedule/tile_order.cuh"

namespace zoo {

using OwnTile =
    Fp8b128Tile<Variant::TOKENS, Variant::WEIGHTS, Variant::STAGES, Variant::WARPGROUPS, Variant::SWAPPED, Variant::OVERLAPPED>;
using Tile = MayShareTile<OwnTile, sharers<Variant>()>;
using Rows = FewOrEvenTiles<Tile, Tile::TOKENS>;
using From = MayShareOperands<Tile, Rows>;
using OfCluster = MayShareOrder<Tile, Variant::SPLITS, Rows>;
using Order = std::conditional_t<Variant::IN_TURN, DenseOrder<Tile, Variant::BAND, Rows>, OfCluster>;
using Split = std::conditional_t<(Variant::SPLITS > 1), FewTokensPushed<Tile, Variant::SPLITS>, FewTokens<Tile, 1>>;
using Way = std::conditional_t<Variant::IN_TURN, FewTokensInTurn<Tile>, Split>;

}  // namespace zoo

#include "gemm/fp8b128_dense.cuh"
