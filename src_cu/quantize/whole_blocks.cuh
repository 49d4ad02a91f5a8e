// The direction `rows` where instructions are dear: FP4 of two-byte floats, SwiGLU.
//
// In rows.cuh much is spent on exchanges: for the largest magnitude, for the multiplier, for whole stores. Here a lane has as
// many elements that follow each other as 16 bytes of q hold, from loads of 16 bytes that are further apart from lane to lane,
// and L1 joins them. So it stores what it computes, and it has whole blocks or shares one with few others, which all compute
// its scale. A warp's share is 4 pieces (of f32 8), as there, and where they lie is the scale layout's.
//
//   a piece, 2-byte input, FP4:   lane   0       1      ...  7           all 4 pieces in one turn
//                                 column 0..31   32..63      224..255
//                          FP8:   lane   0       1      ...  15          2 pieces a turn, two turns, all loads first
//                                 column 0..15   16..31      240..255
#pragma once

#include <cstdint>

#include "common/dependent_launch.cuh"
#include "common/global_memory.cuh"
#include "common/variant.cuh"
#include "quantize/input.cuh"
#include "quantize/scale_layout.cuh"

namespace zoo {

// A source is what is quantised: In, what a cell is (input.cuh); start_at(row, column), from where loads count; load(row,
// column) of one cell; finish(loaded, cells) when all loads have been issued. This one is a matrix with rows `stride` elements
// apart; swiglu.cuh has another.
template <class X>
struct Matrix {
    using In = Input<X>;
    using Loaded = uint4;
    static constexpr int BYTES = 16 / In::VALUES;  // of an element

    const uint8_t* x;
    int64_t stride;

    __device__ __forceinline__ void start_at(uint64_t row, uint64_t column) {
        x += (row * stride + column) * BYTES;
        asm("" : "+l"(x));  // opaque: or the compiler adds up the address anew for every load
    }
    __device__ __forceinline__ uint4 load(int row, int column) const {
        return load_16_bytes(x + (row * stride + column) * BYTES);
    }

    template <int CELLS>
    __device__ __forceinline__ void finish(const uint4 (&loaded)[CELLS], uint4 (&cells)[CELLS]) const {
#pragma unroll
        for (int i = 0; i < CELLS; i++) cells[i] = loaded[i];
    }
};

// What a lane does in a turn: COLUMNS elements that follow each other, up to 16 bytes of q.
template <class Format, class Source, int COLUMNS_ = 16 * Format::ELEMENTS_PER_BYTE>
struct WholeBlocks {
    using In = typename Source::In;
    using Cell = typename In::Cell;
    using Scale = typename Format::Scale;
    static constexpr int COLUMNS = COLUMNS_, TURNS = 32 / COLUMNS;
    static constexpr int VALUES = In::VALUES, CELLS = COLUMNS / VALUES;  // of a lane and turn
    static constexpr int PIECE = 32 * VALUES, PIECE_LANES = PIECE / COLUMNS, TURN_PIECES = 32 / PIECE_LANES;
    static constexpr int PIECES = TURNS * TURN_PIECES;
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

    // columns_left: from the lane's first on, at most COLUMNS; zero or negative where there is nothing.
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

    // scale_columns_left: the same with the columns of padding, where scales are 0.
    static __device__ __forceinline__ void store_scales(uint32_t (&scale)[BLOCKS], int columns_left, int scale_columns_left,
                                                        Scale* place) {
#pragma unroll
        for (int b = 0; b < BLOCKS; b++)
            if (columns_left <= b * Format::BLOCK) scale[b] = 0;
        if (BLOCKS == 2 && scale_columns_left == COLUMNS && reinterpret_cast<uintptr_t>(place) % 2 == 0) {
            *reinterpret_cast<uint16_t*>(place) = scale[0] | scale[BLOCKS - 1] << 8;
        } else {
#pragma unroll
            for (int b = 0; b < BLOCKS; b++)
                if (scale_columns_left > b * Format::BLOCK) place[b] = scale[b];
        }
    }
};

// All rows of a source of M rows of K elements, K a multiple of 16; tables see to it that both are less than 2^31. Rows of q
// are q_stride bytes apart, and 16-byte aligned where they have whole 16 bytes of elements.
template <int THREADS, int COLUMNS_OF_LANE = 0, class Format, class Source>
__device__ __forceinline__ void quantize_whole_blocks(Layout layout, Format format, Source source, uint8_t* q, uint8_t* scales,
                                                      int64_t M, int64_t K, int64_t q_stride, int64_t scales_stride,
                                                      uint32_t cta = blockIdx.x) {
    using Lane = WholeBlocks<Format, Source, COLUMNS_OF_LANE == 0 ? 16 * Format::ELEMENTS_PER_BYTE : COLUMNS_OF_LANE>;
    using Scale = typename Format::Scale;
    constexpr int TURNS = Lane::TURNS, CELLS = Lane::CELLS, COLUMNS = Lane::COLUMNS;
    const AnyScaleLayout<Format::BLOCK, Lane::PIECES, Lane::PIECE, Scale> layout_of_scales(layout);

    let_next_kernel_launch();
    const int lane = threadIdx.x % 32, piece = lane / Lane::PIECE_LANES;
    const Corner corner = layout_of_scales.corner(cta * (THREADS / 32) + threadIdx.x / 32, K);
    wait_for_previous_kernel();
    if (corner.row >= layout_of_scales.rows_end(M)) return;
    const uint32_t first_row = corner.row + layout_of_scales.row(piece);
    const uint32_t first_column = corner.column + layout_of_scales.column(piece) + lane % Lane::PIECE_LANES * COLUMNS;
    // From one turn to the next.
    const int row_step = layout_of_scales.row(Lane::TURN_PIECES) - layout_of_scales.row(0);
    const int column_step = layout_of_scales.column(Lane::TURN_PIECES) - layout_of_scales.column(0);

    source.start_at(first_row, first_column);
    typename Source::Loaded loaded[TURNS * CELLS];
    int columns_left[TURNS];  // from this lane on; zero or negative where there is nothing
#pragma unroll
    for (int t = 0; t < TURNS; t++) {
        const uint32_t row = first_row + t * row_step, column = first_column + t * column_step;
        columns_left[t] = row < uint32_t(M) ? min(int(K - column), COLUMNS) : 0;
#pragma unroll
        for (int c = 0; c < CELLS; c++) {
            loaded[t * CELLS + c] = {};
            if (c * Lane::VALUES < columns_left[t])
                loaded[t * CELLS + c] = source.load(t * row_step, t * column_step + c * Lane::VALUES);
        }
    }
    format.prepare();
    q += first_row * q_stride + first_column / Format::ELEMENTS_PER_BYTE;
    const int64_t q_step = row_step * q_stride + column_step / Format::ELEMENTS_PER_BYTE;
    Scale* first_place = reinterpret_cast<Scale*>(scales) + layout_of_scales.place(scales_stride, first_row, first_column);
    const int place_step = layout_of_scales.place(0, row_step, column_step);  // a share is inside a tile
    typename Lane::Cell data[TURNS * CELLS];
    source.finish(loaded, data);

#pragma unroll
    for (int t = 0; t < TURNS; t++) {
        Lane blocks;
        blocks.find_scales(format, data + t * CELLS);
        // Without the branch the compiler runs out of registers for FP4; FP8 has registers enough, and there it costs 3 %.
        if (TURNS > 1 || columns_left[t] > 0)
            blocks.store_elements(format, data + t * CELLS, columns_left[t], q + t * q_step, q_stride);

        const uint32_t row = first_row + t * row_step, column = first_column + t * column_step;
        const int scale_columns_left = min(int(layout_of_scales.columns_end(K) - column), COLUMNS);
        if (row >= uint32_t(layout_of_scales.rows_end(M)) || scale_columns_left <= 0 || lane % Lane::BLOCK_LANES != 0) continue;
        Lane::store_scales(blocks.scale, columns_left[t], scale_columns_left, first_place + t * place_step);
    }
}

}  // namespace zoo
