// Quantises groups of rows whose ends are on the device, with or without an index into x. Included by kernels/row_groups.cu.
//
//   CTA        quantises shares of x (quantize_group_rows) or writes zeros (groups/fill_padding.cuh)
//   warp       a share: PIECES pieces of x, side by side in a row if scales are plain, else below each other in as many rows
//   lane       one or two segments (rows/whole_blocks.cuh)
//
// Loads return in the order of issue, cache hits included. So a warp issues the loads of group ends before the loads of x.
// Then each lane adds up the padding of its groups and holds three numbers while x is in flight.
#pragma once

#include <cstdint>

#include "common/dependent_launch.cuh"
#include "common/global_memory.cuh"
#include "common/input_values.cuh"
#include "quantize/groups/fill_padding.cuh"
#include "quantize/groups/row_groups.cuh"
#include "quantize/rows/matrix.cuh"
#include "quantize/rows/whole_blocks.cuh"
#include "quantize/scales/group_scales.cuh"

namespace zoo {

// Quantises a warp's share of x. `tensor_scale_step` is the distance between the tensor scales of two groups; 0: all groups
// use the first.
template <class X, bool PADDED, class Traits, class Format>
__device__ __forceinline__ void quantize_group_rows(typename Traits::Argument format_argument, int64_t tensor_scale_step,
                                                    const RowGroups& groups, const GroupScales<Format>& scales_of_groups,
                                                    uint32_t share, const uint8_t* x, uint8_t* q, int K, uint32_t x_stride,
                                                    uint32_t q_stride) {
    using In = Input<X>;
    // A segment fills 16 bytes of q, but reads at most 64 bytes of x.
    constexpr int COLUMNS = In::VALUES == 4 ? 16 : 16 * Format::ELEMENTS_PER_BYTE;
    using Segment = LaneSegment<Format, Matrix<X>, COLUMNS>;
    constexpr int SEGMENTS = Segment::SEGMENTS, CELLS = Segment::CELLS, PIECES = Segment::PIECES;

    // The steps lead from one piece to the next.
    const int row_step = scales_of_groups.plain ? 0 : 1, column_step = scales_of_groups.plain ? Segment::PIECE : 0;
    const uint32_t rows_more = scales_of_groups.plain ? 0 : PIECES - 1;
    const uint32_t width = scales_of_groups.plain ? PIECES * Segment::PIECE : Segment::PIECE;
    const uint32_t across = (K + width - 1) / width;

    const int lane = threadIdx.x % 32;
    const int first_row = share / across * (rows_more + 1), first_column = share % across * width;
    if (first_row >= groups.M) return;
    const bool shifts = PADDED || scales_of_groups.blocked();
    auto piece_of = [&](int index) { return index * Segment::SEGMENT_PIECES + lane / Segment::PIECE_LANES; };
    auto column_of = [&](int index) {
        return first_column + piece_of(index) * column_step + lane % Segment::PIECE_LANES * COLUMNS;
    };
    int rows[SEGMENTS], columns[SEGMENTS], sources[SEGMENTS];  // rows of x; a negative source: zeros
#pragma unroll
    for (int s = 0; s < SEGMENTS; s++) {
        rows[s] = sources[s] = first_row + piece_of(s) * row_step;
        columns[s] = column_of(s);
        if (groups.index != nullptr && rows[s] < groups.M) sources[s] = load_int(groups.index + rows[s]);
    }
    int end_row = groups.end(groups.count - 1);
    LanePaddingBefore part;
    if (shifts || tensor_scale_step != 0) part = LanePaddingBefore(groups, lane, first_row, rows_more);
    end_row = min(end_row, groups.M);
    if (first_row >= end_row && !shifts) return;
    const int q_end_row = PADDED ? groups.M : end_row, scales_end_row = shifts ? groups.M : end_row;

    uint4 data[SEGMENTS * CELLS];
    int columns_left[SEGMENTS];  // from the segment's first column on; zero or negative: there is nothing
#pragma unroll
    for (int s = 0; s < SEGMENTS; s++) {
        if (rows[s] >= end_row) sources[s] = -1;
        columns_left[s] = min(K - columns[s], COLUMNS);
        const uint8_t* source = x + (uint64_t(uint32_t(sources[s])) * x_stride + columns[s]) * Matrix<X>::BYTES;
#pragma unroll
        for (int c = 0; c < CELLS; c++) {
            data[s * CELLS + c] = make_uint4(0, 0, 0, 0);
            if (c * In::VALUES < columns_left[s] && sources[s] >= 0) data[s * CELLS + c] = load_16_bytes(source + c * 16);
        }
    }

    PaddingBefore before[SEGMENTS] = {};
    if (shifts || tensor_scale_step != 0) {
        const PaddingBefore first = {__reduce_add_sync(0xFFFFFFFF, part.before.padding),
                                     __reduce_add_sync(0xFFFFFFFF, part.before.groups)};
#pragma unroll
        for (int s = 0; s < SEGMENTS; s++) before[s] = first;
        if (__any_sync(0xFFFFFFFF, part.ends_inside)) add_inside(groups, lane, first_row, rows_more, rows, before);
    }

    // The index of this lane among the lanes that share its block.
    const int storer = lane % Segment::BLOCK_LANES;
    auto store_scales = [&](uint32_t (&scales)[Segment::BLOCKS], int index, int padding) {
        const int row = first_row + piece_of(index) * row_step,
                  column = column_of(index) - storer * COLUMNS;  // of the block
        const int scale_columns_left = min(scales_of_groups.columns_end(K) - column, COLUMNS);
        if (row < scales_end_row && scale_columns_left > 0)
            Segment::store_scales(scales, row < end_row ? min(K - column, COLUMNS) : 0, scale_columns_left,
                                  scales_of_groups.at(row + (shifts ? padding : 0), column));
    };
    // All lanes of a block have its scale. So where a block has enough lanes, each stores the scale of one segment, in one
    // instruction.
    constexpr bool TOGETHER = SEGMENTS == 2 && Segment::BLOCK_LANES >= SEGMENTS;
    uint32_t scales[SEGMENTS][Segment::BLOCKS];
#pragma unroll
    for (int s = 0; s < SEGMENTS; s++) {
        Format format = Traits::make(format_argument, min(before[s].groups, groups.count - 1) * tensor_scale_step);
        format.prepare();
        Segment segment;
        segment.find_scales(format, data + s * CELLS);
        const int left = rows[s] < q_end_row ? columns_left[s] : 0;
        if (SEGMENTS > 1 || left > 0)  // rows/whole_blocks.cuh gives the reason
            segment.store_elements(format, data + s * CELLS, left,
                                   q + uint64_t(uint32_t(rows[s] + (PADDED ? before[s].padding : 0))) * q_stride +
                                       columns[s] / Format::ELEMENTS_PER_BYTE,
                                   q_stride);
#pragma unroll
        for (int b = 0; b < Segment::BLOCKS; b++) scales[s][b] = segment.scale[b];
        if (!TOGETHER && storer == 0) store_scales(scales[s], s, before[s].padding);
    }
    if constexpr (TOGETHER) {
        const bool second = storer == 1;
        uint32_t own[1] = {second ? scales[1][0] : scales[0][0]};
        const int difference = before[1].padding - before[0].padding;
        if (storer < SEGMENTS) store_scales(own, storer, before[0].padding + (second ? difference : 0));
    }
}

// The kernel. CTAs that write zeros are spread evenly over the first half of the grid: `fill_share` / 2^32 of all CTAs. So
// writes mix with reads, and no zeros are left to the end. Without padding there are no such CTAs.
template <class X, bool PADDED, int THREADS, class Traits, class Format>
__device__ __forceinline__ void quantize_row_groups(typename Traits::Argument format_argument, int64_t tensor_scale_step,
                                                    const RowGroups& groups, const GroupScales<Format>& scales_of_groups,
                                                    int64_t fill_share, const uint8_t* x, uint8_t* q, int32_t* padded_starts,
                                                    int32_t* padded_ends, int K, uint32_t x_stride, uint32_t q_stride) {
    constexpr int WARPS = THREADS / 32;
    let_next_kernel_launch();
    const uint32_t warp = threadIdx.x / 32;
    const uint32_t fill_ctas = (groups.count * FILL_WARPS<PADDED> + WARPS - 1) / WARPS;
    const uint32_t fills = min(uint32_t(blockIdx.x * fill_share >> 32), fill_ctas);
    const uint32_t fills_then = min(uint32_t((blockIdx.x + 1) * fill_share >> 32), fill_ctas);
    wait_for_previous_kernel();
    if (fills < fills_then)
        fill_padding<PADDED>(groups, scales_of_groups, fills * WARPS + warp, q, padded_starts, padded_ends, K, q_stride);
    else
        quantize_group_rows<X, PADDED, Traits>(format_argument, tensor_scale_step, groups, scales_of_groups,
                                               (blockIdx.x - fills) * WARPS + warp, x, q, K, x_stride, q_stride);
}

}  // namespace zoo
