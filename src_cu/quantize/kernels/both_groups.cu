// quantize.<format>.both.m_grouped_contiguous and .m_grouped_padded: groups of rows along K and along M from one read of x. Along M
// groups are back to back, or each is padded to a multiple of 128. Made of:
//
//   common/formats.cuh             which format the dtypes of elements and scales choose
//   columns/grouped_both.cuh       the pipeline, and how rows of x come to shared memory
//   columns/both.cuh               how a tile is quantised along K
//   columns/column_results.cuh     how a tile is quantised along M and stored transposed
//   scales/tile_scales.cuh         how the scales of a tile are stored
//   scales/scale_layout.cuh        the layouts of scales
//   groups/tile_groups.cuh         which group a tile belongs to
//   groups/contiguous_columns.cuh  where results go, and stores that begin at any element
//   groups/padded_columns.cuh      or where results go, and the bounds of padded groups

#include "common/formats.cuh"
#include "common/variant.cuh"
#include "quantize/columns/grouped_both.cuh"
#include "quantize/groups/contiguous_columns.cuh"
#include "quantize/groups/padded_columns.cuh"
#include "quantize/scales/scale_layout.cuh"

using X = zoo::bf16;
using Tile = zoo::Tile<X, Variant::ROWS, Variant::COLUMNS>;
using Traits = zoo::FormatOf<Variant::q_rows, Variant::scales_rows>;
#ifdef ZOO_WITH_PADDED
using Groups = zoo::PaddedGroups<Traits, Tile>;
#else
using Groups = zoo::ContiguousGroups<X, Traits, Tile>;
#endif
using Scale = Groups::Scale;
#ifdef ZOO_WITH_MAPPED
using Maps = zoo::RowMaps;
#else
using Maps = zoo::NoMaps;
#endif

namespace zoo {
constexpr int DYNAMIC_SHARED_BYTES = GROUPED_BOTH_SHARED_BYTES<::X, ::Traits::Type, ::Tile, ::Maps>;
}  // namespace zoo

// Strides of x and q in bytes; strides of scales as in scales/scale_layout.cuh.
extern "C" __global__ void __launch_bounds__(Tile::THREADS, Variant::CTAS) ZOO_KERNEL(ZOO_PARAMETERS) {
    ZOO_ABSENT_PARAMETERS
#ifdef ZOO_WITH_PADDED
    const Groups groups_of_rows = {{scales_cols, scales_cols_stride, M, offsets, int(groups), tensor_scale_step}};
#else
    const Groups groups_of_rows = {
        {scales_cols, scales_cols_stride, M, offsets, int(groups), tensor_scale_step}, x, x_stride, rule, index};
#endif
#ifdef ZOO_WITH_MAPPED
    const Maps maps = {x_map, q_rows_map};
#else
    const Maps maps;
#endif
    zoo::quantize_grouped_both<X, Traits, Tile>(zoo::layout_of<Scale>(plain), rule, maps, {x, x_stride, index},
                                                {q_rows, q_rows_stride, scales_rows, scales_rows_stride}, q_cols_map, q_cols,
                                                q_cols_stride, K, groups_of_rows);
#ifdef ZOO_WITH_PADDED
    if (blockIdx.x == 0 && threadIdx.x < 32) zoo::store_padded_bounds(offsets, groups, padded_starts, padded_ends);
#endif
}
