// Quantises rows where a lane holds whole blocks, or shares a block with few lanes. Included by the kernels that are bound
// by instructions: FP4 of 2-byte floats on Hopper, SwiGLU, amax in the same pass, and groups of rows.
//
// A lane has a segment: consecutive columns that fill one store of 16 bytes of q. So a lane stores what it computes. In
// rows/split_blocks.cuh lanes exchange magnitudes, multipliers and words instead. The price is that loads of neighbouring
// lanes are further apart; L1 joins them. A warp's share is 4 pieces of 512 bytes of x (8 pieces of f32). The scale layout
// chooses which pieces.
//
//   a piece, 2-byte input, FP4:   lane   0       1      ...  7           1 segment a lane: all 4 pieces at once
//                                 column 0..31   32..63      224..255
//                          FP8:   lane   0       1      ...  15          2 segments a lane, 2 pieces each; all loads come first
//                                 column 0..15   16..31      240..255
#pragma once

#include <cstdint>

#include "common/dependent_launch.cuh"
#include "common/global_memory.cuh"
#include "common/variant.cuh"
#include "quantize/scales/scale_layout.cuh"

namespace zoo {

// A lane's segment: COLUMNS consecutive elements. Finds the scales of its blocks and stores elements and scales.
template <class Format, class Source, int COLUMNS_ = 16 * Format::ELEMENTS_PER_BYTE>
struct LaneSegment {
    using In = typename Source::In;
    using Cell = typename In::Cell;
    using Scale = typename Format::Scale;
    static constexpr int COLUMNS = COLUMNS_, SEGMENTS = 32 / COLUMNS;
    static constexpr int VALUES = In::VALUES, CELLS = COLUMNS / VALUES;  // cells of a segment
    static constexpr int PIECE = 32 * VALUES, PIECE_LANES = PIECE / COLUMNS, SEGMENT_PIECES = 32 / PIECE_LANES;
    static constexpr int PIECES = SEGMENTS * SEGMENT_PIECES;
    static constexpr int BLOCKS = COLUMNS > Format::BLOCK ? COLUMNS / Format::BLOCK : 1, BLOCK_CELLS = CELLS / BLOCKS;
    static constexpr int BLOCK_LANES = COLUMNS < Format::BLOCK ? Format::BLOCK / COLUMNS : 1;
    static constexpr int CELL_BYTES = VALUES / Format::ELEMENTS_PER_BYTE, CELL_WORDS = CELL_BYTES < 4 ? 1 : CELL_BYTES / 4;
    static constexpr int STORED_BYTES = COLUMNS / Format::ELEMENTS_PER_BYTE;
    static_assert(STORED_BYTES == 16 || STORED_BYTES == 8);

    uint32_t scale[BLOCKS];
    float multiplier[BLOCKS];

    __device__ __forceinline__ void find_scales(const Format& format, const Cell* data) {
#pragma unroll
        for (int b = 0; b < BLOCKS; b++) {
            const Cell* cells = data + b * BLOCK_CELLS;
            uint32_t magnitude = In::largest(cells[0]);
#pragma unroll
            for (int c = 1; c < BLOCK_CELLS; c++) magnitude = In::larger(magnitude, In::largest(cells[c]));
#pragma unroll
            for (int distance = 1; distance < BLOCK_LANES; distance *= 2)
                magnitude = In::larger(magnitude, __shfl_xor_sync(0xFFFFFFFF, magnitude, distance));
            scale[b] = format.scale_of(In::magnitude_to_float(In::magnitude(magnitude)));
            multiplier[b] = format.multiplier(scale[b]);
        }
    }

    // columns_left counts from the segment's first column, up to COLUMNS. Zero or negative: there is nothing.
    __device__ __forceinline__ void store_elements(const Format& format, const Cell* data, int columns_left, uint8_t* target,
                                                   int64_t q_stride) const {
        uint32_t words[4];
#pragma unroll
        for (int c = 0; c < CELLS; c++) {
            uint32_t cell[CELL_WORDS];
            format.template encode_loaded<In>(data[c], multiplier[c / BLOCK_CELLS], cell);
            if constexpr (CELL_BYTES == 2) {
                words[c / 2] = c % 2 ? words[c / 2] | cell[0] << 16 : cell[0];
            } else {
#pragma unroll
                for (int w = 0; w < CELL_WORDS; w++) words[c * CELL_WORDS + w] = cell[w];
            }
        }
        if constexpr (STORED_BYTES == 8) {
            if (columns_left == COLUMNS) store_8_bytes(target, words);
        } else if (columns_left == COLUMNS && (Format::BLOCK % COLUMNS == 0 || q_stride % 16 == 0)) {
            store_16_bytes(target, words);
        } else if constexpr (Format::BLOCK % COLUMNS != 0) {
            store_8_bytes(target, words);
            if (columns_left == COLUMNS) store_8_bytes(target + 8, words + 2);
        }
    }

    // scale_columns_left counts the columns of padding, too. Their scales are 0.
    static __device__ __forceinline__ void store_scales(uint32_t (&scale)[BLOCKS], int columns_left, int scale_columns_left,
                                                        Scale* offset) {
#pragma unroll
        for (int b = 0; b < BLOCKS; b++)
            if (columns_left <= b * Format::BLOCK) scale[b] = 0;
        if (BLOCKS == 2 && scale_columns_left == COLUMNS && reinterpret_cast<uintptr_t>(offset) % 2 == 0) {
            *reinterpret_cast<uint16_t*>(offset) = scale[0] | scale[BLOCKS - 1] << 8;
        } else {
#pragma unroll
            for (int b = 0; b < BLOCKS; b++)
                if (scale_columns_left > b * Format::BLOCK) offset[b] = scale[b];
        }
    }
};

// Quantises all M rows of K elements of a source. K is a multiple of 16. The tables ensure that M and K are less than 2^31.
// Rows of q are q_stride bytes apart; they are 16-byte aligned where they hold whole 16 bytes of elements.
template <int THREADS, int SEGMENT_COLUMNS = 0, class Format, class Source>
__device__ __forceinline__ void quantize_whole_blocks(Layout layout, Format format, Source source, uint8_t* q, uint8_t* scales,
                                                      int64_t M, int64_t K, int64_t q_stride, int64_t scales_stride,
                                                      uint32_t cta = blockIdx.x) {
    using Segment = LaneSegment<Format, Source, SEGMENT_COLUMNS == 0 ? 16 * Format::ELEMENTS_PER_BYTE : SEGMENT_COLUMNS>;
    using Scale = typename Format::Scale;
    constexpr int SEGMENTS = Segment::SEGMENTS, CELLS = Segment::CELLS, COLUMNS = Segment::COLUMNS;
    const RuntimeScaleLayout<Format::BLOCK, Segment::PIECES, Segment::PIECE, Scale> layout_of_scales(layout);

    let_next_kernel_launch();
    const int lane = threadIdx.x % 32, piece = lane / Segment::PIECE_LANES;
    const Corner corner = layout_of_scales.corner(cta * (THREADS / 32) + threadIdx.x / 32, K);
    wait_for_previous_kernel();
    if (corner.row >= layout_of_scales.rows_end(M)) return;
    const uint32_t first_row = corner.row + layout_of_scales.row(piece);
    const uint32_t first_column = corner.column + layout_of_scales.column(piece) + lane % Segment::PIECE_LANES * COLUMNS;
    // These steps lead from one segment of the lane to the next.
    const int row_step = layout_of_scales.row(Segment::SEGMENT_PIECES) - layout_of_scales.row(0);
    const int column_step = layout_of_scales.column(Segment::SEGMENT_PIECES) - layout_of_scales.column(0);

    source.start_at(first_row, first_column);
    typename Source::Loaded loaded[SEGMENTS * CELLS];
    int columns_left[SEGMENTS];  // from the segment's first column on; zero or negative: there is nothing
#pragma unroll
    for (int s = 0; s < SEGMENTS; s++) {
        const uint32_t row = first_row + s * row_step, column = first_column + s * column_step;
        columns_left[s] = row < uint32_t(M) ? min(int(K - column), COLUMNS) : 0;
#pragma unroll
        for (int c = 0; c < CELLS; c++) {
            loaded[s * CELLS + c] = {};
            if (c * Segment::VALUES < columns_left[s])
                loaded[s * CELLS + c] = source.load(s * row_step, s * column_step + c * Segment::VALUES);
        }
    }
    format.prepare();
    q += first_row * q_stride + first_column / Format::ELEMENTS_PER_BYTE;
    const int64_t q_step = row_step * q_stride + column_step / Format::ELEMENTS_PER_BYTE;
    Scale* first_scale = reinterpret_cast<Scale*>(scales) + layout_of_scales.offset(scales_stride, first_row, first_column);
    const int scale_step = layout_of_scales.offset(0, row_step, column_step);  // both segments are in one tile of scales
    typename Segment::Cell data[SEGMENTS * CELLS];
    source.finish(loaded, data);

#pragma unroll
    for (int s = 0; s < SEGMENTS; s++) {
        Segment segment;
        segment.find_scales(format, data + s * CELLS);
        // Without the branch the compiler runs out of registers for FP4. For FP8 registers suffice, and the branch costs
        // time.
        if (SEGMENTS > 1 || columns_left[s] > 0)
            segment.store_elements(format, data + s * CELLS, columns_left[s], q + s * q_step, q_stride);

        const uint32_t row = first_row + s * row_step, column = first_column + s * column_step;
        const int scale_columns_left = min(int(layout_of_scales.columns_end(K) - column), COLUMNS);
        if (row >= uint32_t(layout_of_scales.rows_end(M)) || scale_columns_left <= 0 || lane % Segment::BLOCK_LANES != 0)
            continue;
        Segment::store_scales(segment.scale, columns_left[s], scale_columns_left, first_scale + s * scale_step);
    }
}

}  // namespace zoo
