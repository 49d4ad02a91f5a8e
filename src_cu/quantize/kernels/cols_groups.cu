// quantize.<format>.cols.m_grouped_contiguous and .m_grouped_padded: quantize.<format>.cols of groups of rows. Groups are back to
// back in q, or each is padded to a multiple of 128. Made of:
//
//   common/formats.cuh             which format the dtypes of elements and scales choose
//   columns/columns.cuh            the pipeline, and which rows a tile has
//   columns/tile.cuh               how a tile of x comes to shared memory
//   columns/column_results.cuh     how a tile is quantised along M and stored transposed
//   scales/tile_scales.cuh         how the scales of a tile are stored
//   scales/scale_layout.cuh        the layouts of scales
//   groups/tile_groups.cuh         which group a tile belongs to
//   groups/contiguous_columns.cuh  where results go, and stores that begin at any element
//   groups/padded_columns.cuh      or where results go, and the bounds of padded groups

#include "common/formats.cuh"
#include "quantize/columns/columns.cuh"
#include "quantize/groups/contiguous_columns.cuh"
#include "quantize/groups/padded_columns.cuh"
#include "quantize/scales/scale_layout.cuh"

using Tile = zoo::Tile<Variant::x, Variant::ROWS, Variant::COLUMNS>;
using Traits = zoo::FormatOf<Variant::q, Variant::scales>;
#ifdef ZOO_WITH_PADDED
using Groups = zoo::PaddedGroups<Traits, Tile>;
#else
using Groups = zoo::ContiguousGroups<Variant::x, Traits, Tile>;
#endif

namespace zoo {
constexpr int DYNAMIC_SHARED_BYTES = COLUMNS_SHARED_BYTES<Variant::x, ::Traits::Type, ::Tile>;
}  // namespace zoo

// x_stride and q_stride in bytes; scales_stride from row to row.
extern "C" __global__ void __launch_bounds__(Tile::THREADS, Variant::CTAS) ZOO_KERNEL(ZOO_PARAMETERS) {
#ifdef ZOO_WITH_PADDED
    const Groups groups_of_rows = {{scales, scales_stride, M, offsets, int(groups), tensor_scale_step}};
#else
    const Groups groups_of_rows = {{scales, scales_stride, M, offsets, int(groups), tensor_scale_step}, x, x_stride, rule};
#endif
    zoo::quantize_cols<Variant::x, Traits, Tile>(zoo::layout_of<Groups::Scale>(plain), rule, x_map, q_map, q, q_stride, K,
                                                 groups_of_rows);
#ifdef ZOO_WITH_PADDED
    if (blockIdx.x == 0 && threadIdx.x < 32) zoo::store_padded_bounds(offsets, groups, padded_starts, padded_ends);
#endif
}
