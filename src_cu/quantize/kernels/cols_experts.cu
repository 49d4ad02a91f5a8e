// quantize.<format>.cols.experts: quantize.<format>.cols of each matrix of x (E, N, K): q (E, K, N). Made of:
//
//   common/formats.cuh             which format the dtypes of elements and scales choose
//   columns/columns.cuh            the pipeline, and which rows a tile has
//   columns/tile.cuh               how a tile of x comes to shared memory
//   columns/column_results.cuh     how a tile is quantised along M and stored transposed
//   scales/tile_scales.cuh         how the scales of a tile are stored
//   scales/scale_layout.cuh        the layouts of scales
//   groups/expert_columns.cuh      which matrix a tile belongs to, where its results go

#include "common/formats.cuh"
#include "quantize/columns/columns.cuh"
#include "quantize/groups/expert_columns.cuh"
#include "quantize/scales/scale_layout.cuh"

using Tile = zoo::Tile<Variant::x, Variant::ROWS, Variant::COLUMNS>;
using Traits = zoo::FormatOf<Variant::q, Variant::scales>;
using Groups = zoo::ExpertMatrices<Traits::Type, Tile>;

namespace zoo {
constexpr int DYNAMIC_SHARED_BYTES = COLUMNS_SHARED_BYTES<Variant::x, ::Traits::Type, ::Tile>;
}  // namespace zoo

// Strides of q in bytes; strides of scales as in scales/scale_layout.cuh.
extern "C" __global__ void __launch_bounds__(Tile::THREADS, Variant::CTAS) ZOO_KERNEL(ZOO_PARAMETERS) {
    const Groups experts = {scales, scales_row, scales_matrix, q_matrix, N, tensor_scale_step};
    zoo::quantize_cols<Variant::x, Traits, Tile>(zoo::layout_of<Groups::Scale>(plain), rule, zoo::MatricesOfMap{x_map}, q_map, q,
                                                 q_row, K, experts);
}
