// Which order and which rows in e4m3 a variant has: a CTA takes tiles that share scales
// one after the other, or a cluster of two takes them at once, or either, as the launch says.
#pragma once

#include <type_traits>

#include "gemm/four_bit/gated_exchange.cuh"
#include "gemm/four_bit/gated_order.cuh"
#include "gemm/four_bit/gated_pairs.cuh"

namespace zoo {

// RowsOfOne: of a CTA alone.
template <class V, class Tile, class Places, class RowsOfOne>
struct GatedParts {
    using Order = PartsInTurn<Tile, OrderOfFewOrManyGroups<Tile, V::TOKENS, V::BAND, Places>>;
    using Rows = RowsOfOne;
};
// In whose table IN_CLUSTER is only where it is 1: h in e4m3, and of stored weights in 16 bits as well, where each CTA is by itself.
template <class V, class Tile, class Places, class RowsOfOne>
    requires requires { V::IN_CLUSTER; }
struct GatedParts<V, Tile, Places, RowsOfOne> {
    using Order = std::conditional_t<Tile::STORED, TilesOfClustersOrCtas<Tile, Places>, TilesOfClusters<Tile, Places>>;
    using Rows = GatedPairsOfClusters<Tile>;
};

// Likewise: of the tiles that share scales of h in e4m3 a cluster takes both at once, or a CTA both in turn.
template <class V, class Tile, class Places, class RowsOfOne>
    requires requires { V::IN_CLUSTER_OR_TURN; }
struct GatedParts<V, Tile, Places, RowsOfOne> {
    using Order = TilesOfClustersOrInTurn<Tile, OrderOfFewOrManyGroups<Tile, V::TOKENS, V::BAND, Places>>;
    using Rows = GatedPairsOfClustersOrInTurn<Tile>;
};

}  // namespace zoo
