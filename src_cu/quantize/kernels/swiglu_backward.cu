// quantize.<format>.both.{m_grouped_contiguous, m_grouped_padded}.swiglu_backward: the gradient of gates and ups along K and along M,
// and the activation along M, of groups of rows. Along M groups are back to back, or each is padded to a multiple of 128. Made of:
//
//   common/formats.cuh             which format the dtypes of elements and scales choose
//   backward/swiglu_gradient.cuh   the activation and its derivatives
//   backward/gradient_rows.cuh     gradients of a tile, and how they are quantised along K
//   backward/swiglu_backward.cuh   the pipeline, and how a tile is quantised along M
//   columns/column_results.cuh     how a tile is stored transposed
//   groups/tile_groups.cuh         which group a tile belongs to
//   groups/contiguous_columns.cuh  where results go, and stores that begin at any element
//   groups/padded_columns.cuh      or where results go, and the bounds of padded groups
//
// Bound by memory and by instructions alike: a gate and its up are 6 bytes read, 5.1 bytes written and about 100
// lane-instructions.

#include "common/formats.cuh"
#include "common/variant.cuh"
#include "quantize/backward/swiglu_backward.cuh"
#include "quantize/groups/contiguous_columns.cuh"
#include "quantize/groups/padded_columns.cuh"

using Traits = zoo::FormatOf<Variant::q_rows, Variant::scales_rows>;
#ifdef ZOO_WITH_PADDED
using Groups = zoo::PaddedGroups<Traits, zoo::GradientTile>;
#else
using Groups = zoo::ContiguousGroups<zoo::bf16, Traits, zoo::GradientTile>;
#endif
using Scale = Groups::Scale;
using zoo::ActivationKind;

namespace zoo {
constexpr int DYNAMIC_SHARED_BYTES = BACKWARD_SHARED_BYTES<::Scale>;
}  // namespace zoo

// Strides of q in bytes. Steps of scales: from row to row of q, and from block to block.
extern "C" __global__ void __launch_bounds__(zoo::GradientTile::THREADS, Variant::CTAS) ZOO_KERNEL(ZOO_PARAMETERS) {
#ifdef ZOO_WITH_PADDED
    const Groups groups_of_rows = {{scales_cols, 1, M, offsets, int(groups), 0}};
#else
    const Groups groups_of_rows = {{scales_cols, 1, M, offsets, int(groups), 0}, nullptr, 0, rule};
#endif
    zoo::swiglu_backward<Traits>(rule, {activation, limit}, d_act, h, K, interleaved, {row_weights, dots, dots_stride},
                                 {q_rows, q_rows_stride, scales_rows, scales_rows_row, scales_rows_block},
                                 {q_cols_map, q_cols, q_cols_stride, scales_cols, scales_cols_row, scales_cols_block},
                                 {q_act_map, q_act, q_act_stride, scales_act, scales_act_row, scales_act_block}, groups_of_rows);
#ifdef ZOO_WITH_PADDED
    if (blockIdx.x == 0 && threadIdx.x < 32) zoo::store_padded_bounds(offsets, groups, padded_starts, padded_ends);
#endif
}
