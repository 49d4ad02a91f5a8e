// quantize.<format>.cols.m_grouped_contiguous: quantize.<format>.cols of groups of rows that lie back to back. Made of:
//
//   common/formats.cuh             which format the dtypes of elements and scales choose
//   columns/columns.cuh            the pipeline, and which rows a tile has
//   columns/tile.cuh               how a tile of x comes to shared memory
//   columns/column_results.cuh     how a tile is quantised along M and stored transposed
//   scales/tile_scales.cuh         how the scales of a tile are stored
//   scales/scale_layout.cuh        the layouts of scales
//   groups/tile_groups.cuh         which group a tile belongs to
//   groups/contiguous_columns.cuh  where results go, and stores that begin at any element

#include "common/formats.cuh"
#include "common/variant.cuh"
#include "quantize/columns/columns.cuh"
#include "quantize/groups/contiguous_columns.cuh"
#include "quantize/scales/scale_layout.cuh"

using Tile = zoo::Tile<Variant::x, Variant::ROWS, Variant::COLUMNS>;
using Traits = zoo::FormatOf<Variant::q, Variant::scales>;
using Groups = zoo::ContiguousGroups<Variant::x, Traits, Tile>;

namespace zoo {
constexpr int DYNAMIC_SHARED_BYTES = COLUMNS_SHARED_BYTES<Variant::x, ::Traits::Type, ::Tile>;
}  // namespace zoo

// x_stride and q_stride in bytes; scales_stride from row to row.
extern "C" __global__ void __launch_bounds__(Tile::THREADS, Variant::CTAS) ZOO_KERNEL(ZOO_PARAMETERS) {
    const Groups ragged = {{scales, scales_stride, M, offsets, int(groups), tensor_scale_step}, x, x_stride, rule};
    zoo::quantize_cols<Variant::x, Traits, Tile>(zoo::layout_of<Groups::Scale>(plain), rule, x_map, q_map, q, q_stride, K,
                                                 ragged);
}
