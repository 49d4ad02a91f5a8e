// Which tile, order and way of putting a product together a variant of FP8 and 4-bit weights is.
#pragma once

#include <type_traits>

#include "gemm/four_bit/product.cuh"

namespace zoo {

// GROUPING: 0 dense, 1 m_grouped_contiguous and m_grouped_masked, 2 m_grouped_gather.
constexpr bool DENSE = Variant::GROUPING == 0, GATHERS = Variant::GROUPING == 2;
using Tile = FourBitTile<Weights(Variant::FORMAT), Variant::TOKENS, Variant::TURNS, Variant::WARPGROUPS, Variant::STAGES,
                         Variant::CHUNKS, GATHERS, Promotion(Variant::PROMOTION)>;
using OfGroups = GroupedOrder<Tile, Variant::BAND, EndsOrPlaces>;
using OfOne = std::conditional_t<(Variant::SPLITS > 1), SplitOrder<Tile, Variant::SPLITS>, DenseOrder<Tile, Variant::BAND>>;
using Order = std::conditional_t<DENSE, OfOne, OfGroups>;
using Way = FourBitProduct<Tile, Order, Variant::SPLITS>;
constexpr int DYNAMIC_SHARED_BYTES = sizeof(Way);

}  // namespace zoo
