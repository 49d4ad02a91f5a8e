// Which tile, order and way of putting a product together a variant of FP8 and 4-bit weights is.
#pragma once

#include <type_traits>

#include "gemm/four_bit/decoded_product.cuh"
#include "gemm/four_bit/product.cuh"

namespace zoo {

// GROUPING: 0 one matrix, with what groups have not, 1 one matrix or groups, 2 gathered rows of groups, 3 groups.
constexpr bool DENSE = Variant::GROUPING == 0, GATHERS = Variant::GROUPING == 2;
constexpr Weights WEIGHTS = Weights(Variant::FORMAT);
constexpr Promotion PROMOTION = Promotion(Variant::PROMOTION);
// Tiles of tokens that have scales for 1 x 128 gather as well, where a launch says so, but for DecodedTile.
constexpr bool MAY_GATHER = Variant::GROUPING == 1 && PROMOTION == Promotion::of_scaled_halves && Variant::TOKENS < 256;

template <class Tile>
using OrderOfGroups =
    std::conditional_t<Variant::GROUPING != 1, OrderOfFewOrManyGroups<Tile, Variant::TOKENS, Variant::BAND, EndsOrPlaces>,
                       OneOrGroupedOrder<Tile, Variant::BAND>>;
template <class Tile>
using OrderOf = std::conditional_t<DENSE, OrderOfOne<Tile, Variant::TOKENS, Variant::SPLITS, Variant::BAND>, OrderOfGroups<Tile>>;

// 256 tokens are worth a warpgroup that decodes, others decode as they multiply.
template <int TOKENS>
struct Choice {
    using Tile = FourBitTile<WEIGHTS, TOKENS, Variant::TURNS, Variant::WARPGROUPS, Variant::STAGES, Variant::CHUNKS, GATHERS,
                             fits<Variant>, PROMOTION, Laid::packed, MAY_GATHER>;
    using Way = FourBitProduct<Tile, OrderOf<Tile>, Variant::SPLITS>;
};
// ONCE is in the tables only where weights are decoded once for all tokens.
template <class V>
constexpr bool decodes_once = requires { V::ONCE; };
template <>
struct Choice<256> {
    using Tile = std::conditional_t<decodes_once<Variant>, DecodedTile<WEIGHTS, Variant::STAGES, PROMOTION, DecodesOnce>,
                                    DecodedTile<WEIGHTS, Variant::STAGES, PROMOTION, DecodesByItself>>;
    using Way = DecodedProduct<Tile, OrderOf<Tile>>;
};
using Tile = Choice<Variant::TOKENS>::Tile;
using Order = OrderOf<Tile>;
using Way = Choice<Variant::TOKENS>::Way;
constexpr int DYNAMIC_SHARED_BYTES = sizeof(Way);

}  // namespace zoo
