// quantize.<format>.both.m_grouped_contiguous: groups of rows that lie back to back, along K and along M from one read of x.
// Made of:
//
//   common/formats.cuh             which format the dtypes of elements and scales choose
//   columns/grouped_both.cuh       the pipeline, and how rows of x come to shared memory
//   columns/both.cuh               how a tile is quantised along K
//   columns/column_results.cuh     how a tile is quantised along M and stored transposed
//   scales/tile_scales.cuh         how the scales of a tile are stored
//   scales/scale_layout.cuh        the layouts of scales
//   groups/tile_groups.cuh         which group a tile belongs to
//   groups/contiguous_columns.cuh  where results go, and stores that begin at any element

#include "common/formats.cuh"
#include "common/variant.cuh"
#include "quantize/columns/grouped_both.cuh"
#include "quantize/groups/contiguous_columns.cuh"
#include "quantize/scales/scale_layout.cuh"

using X = zoo::bf16;
using Tile = zoo::Tile<X, Variant::ROWS, Variant::COLUMNS>;
using Traits = zoo::FormatOf<Variant::q_rows, Variant::scales_rows>;
using Groups = zoo::ContiguousGroups<X, Traits, Tile>;
using Scale = Groups::Scale;

namespace zoo {
constexpr int DYNAMIC_SHARED_BYTES = GROUPED_BOTH_SHARED_BYTES<::X, ::Traits::Type, ::Tile>;
}  // namespace zoo

// Strides of x and q in bytes; strides of scales from row to row.
extern "C" __global__ void __launch_bounds__(Tile::THREADS, Variant::CTAS) ZOO_KERNEL(ZOO_PARAMETERS) {
    const Groups ragged = {{scales_cols, scales_cols_stride, M, offsets, int(groups), 0}, nullptr, 0, rule};
    zoo::quantize_grouped_both<X, Traits, Tile>(zoo::layout_of<Scale>(plain), rule, {x, x_stride, index},
                                                {q_rows, q_rows_stride, scales_rows, scales_rows_stride}, q_cols_map, q_cols,
                                                q_cols_stride, K, ragged);
}
