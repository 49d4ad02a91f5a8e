// quantize.<format>.cols.m_grouped_padded: quantize.<format>.cols of groups of rows, each padded to a multiple of 128.
//
// The groups are in column_groups.cuh, everything else is what quantize.<format>.cols is made of (cols.cu).

#include "common/formats.cuh"
#include "common/variant.cuh"
#include "quantize/cols.cuh"
#include "quantize/column_groups.cuh"

using Tile = zoo::Tile<Variant::x, Variant::ROWS, Variant::COLUMNS>;
using Of = zoo::FormatOf<Variant::q, Variant::scales>;
using Groups = zoo::PaddedGroups<Of, Tile>;

namespace zoo {
constexpr int DYNAMIC_SHARED_BYTES = BYTES_OF_COLS<SharedOfCols<Variant::x, ::Of::Type, ::Tile>>;
}  // namespace zoo

// q_stride in bytes; scales_stride: from row to row.
extern "C" __global__ void __launch_bounds__(Tile::THREADS, Variant::CTAS)
    ZOO_KERNEL(const __grid_constant__ zoo::TensorMap x_map, const __grid_constant__ zoo::TensorMap q_map, Of::Argument format,
               int64_t entry_step, uint8_t* q, Groups::Scale* scales, const int* offsets, int* padded_starts, int* padded_ends,
               int64_t groups, int64_t M, int64_t K, int64_t q_stride, int64_t scales_stride, int64_t plain) {
    const Groups padded = {{scales, scales_stride, M, offsets, int(groups), entry_step}};
    zoo::quantize_cols<Variant::x, Of, Tile>(zoo::layout_of<Groups::Scale>(plain), format, x_map, q_map, q, q_stride, K, padded);
    if (blockIdx.x == 0 && threadIdx.x < 32) zoo::store_padded_bounds(offsets, groups, padded_starts, padded_ends);
}
