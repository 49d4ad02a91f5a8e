// quantize.<format>.cols.m_grouped_contiguous: quantize.<format>.cols of groups of rows that lie back to back.
//
// The groups are in column_groups.cuh, everything else is what quantize.<format>.cols is made of (cols.cu).

#include "common/formats.cuh"
#include "common/variant.cuh"
#include "quantize/cols.cuh"
#include "quantize/column_groups.cuh"

using Tile = zoo::Tile<Variant::x, Variant::ROWS, Variant::COLUMNS>;
using Of = zoo::FormatOf<Variant::q, Variant::scales>;
using Groups = zoo::ContiguousGroups<Variant::x, Of, Tile>;

namespace zoo {
constexpr int DYNAMIC_SHARED_BYTES = BYTES_OF_COLS<SharedOfCols<Variant::x, ::Of::Type, ::Tile>>;
}  // namespace zoo

// x_stride and q_stride in bytes; scales_stride: from row to row.
extern "C" __global__ void __launch_bounds__(Tile::THREADS, Variant::CTAS)
    ZOO_KERNEL(const __grid_constant__ zoo::TensorMap x_map, const __grid_constant__ zoo::TensorMap q_map, Of::Argument format,
               int64_t entry_step, const uint8_t* x, uint8_t* q, Groups::Scale* scales, const int* offsets, int64_t groups,
               int64_t M, int64_t K, int64_t x_stride, int64_t q_stride, int64_t scales_stride, int64_t plain) {
    const Groups ragged = {{scales, scales_stride, M, offsets, int(groups), entry_step}, x, x_stride, format};
    zoo::quantize_cols<Variant::x, Of, Tile>(zoo::layout_of<Groups::Scale>(plain), format, x_map, q_map, q, q_stride, K, ragged);
}
