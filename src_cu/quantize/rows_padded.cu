// quantize.<format>.rows.m_grouped_padded: quantize.<format>.rows of groups of rows, each padded with zeros to a multiple
// of 128 rows.
//
// How rows find their places is in row_groups.cuh, how they are quantised in whole_blocks.cuh.

#include "common/formats.cuh"
#include "common/variant.cuh"
#include "quantize/row_groups.cuh"

using Of = zoo::SparingFormatOf<Variant::q, Variant::scales>;
using Places = zoo::ScalePlaces<Of::Type>;

// Strides as in rows_contiguous.cu.
extern "C" __global__ void __launch_bounds__(Variant::THREADS, Variant::CTAS)
    ZOO_KERNEL(const uint8_t* x, const int32_t* index, const int32_t* offsets, Of::Argument format, int64_t entry_step,
               uint8_t* q, Places::Scale* scales, int64_t scales_stride, int32_t plain, int64_t fill_share,
               int32_t* padded_starts, int32_t* padded_ends, int32_t M, int32_t G, int32_t K, uint32_t x_stride,
               uint32_t q_stride) {
    zoo::quantize_row_groups<Variant::x, true, Variant::THREADS, Of>(format, entry_step, {offsets, index, M, G},
                                                                     Places{scales, scales_stride, plain != 0}, fill_share, x, q,
                                                                     padded_starts, padded_ends, K, x_stride, q_stride);
}
