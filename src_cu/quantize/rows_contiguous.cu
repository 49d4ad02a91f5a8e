// quantize.<format>.rows.m_grouped_contiguous: quantize.<format>.rows of groups of rows that lie back to back. Nothing is
// padded but blocked scales, where every group has tiles of its own.
//
// How rows find their places is in row_groups.cuh, how they are quantised in whole_blocks.cuh.

#include "common/formats.cuh"
#include "common/variant.cuh"
#include "quantize/row_groups.cuh"

using Of = zoo::SparingFormatOf<Variant::q, Variant::scales>;
using Places = zoo::ScalePlaces<Of::Type>;

// x_stride in elements, q_stride in bytes; scales_stride: from row to row, of blocked ones from a row of tiles to the next.
extern "C" __global__ void __launch_bounds__(Variant::THREADS, Variant::CTAS)
    ZOO_KERNEL(const uint8_t* x, const int32_t* index, const int32_t* offsets, Of::Argument format, int64_t entry_step,
               uint8_t* q, Places::Scale* scales, int64_t scales_stride, int32_t plain, int64_t fill_share, int32_t M, int32_t G,
               int32_t K, uint32_t x_stride, uint32_t q_stride) {
    zoo::quantize_row_groups<Variant::x, false, Variant::THREADS, Of>(format, entry_step, {offsets, index, M, G},
                                                                      Places{scales, scales_stride, plain != 0}, fill_share, x, q,
                                                                      nullptr, nullptr, K, x_stride, q_stride);
}
