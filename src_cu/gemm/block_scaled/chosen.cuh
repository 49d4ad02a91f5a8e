// What a variant is made of, from its constants.
#pragma once

#include <type_traits>

#include "gemm/block_scaled/product.cuh"
#include "gemm/block_scaled/split_lines.cuh"

namespace zoo {

template <int KIND>
using KindOf = std::conditional_t<KIND == 0, Mxfp8, std::conditional_t<KIND == 1, Mxfp4, Nvfp4>>;

template <class V>
using TileOf = ScaledTile<KindOf<V::KIND>, V::CTAS, V::COLUMNS, V::SWAPPED != 0, V::STAGES, V::SCALE_STAGES>;

}  // namespace zoo
