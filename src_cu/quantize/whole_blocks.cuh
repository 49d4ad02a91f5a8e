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

// All rows of a source of M rows of K elements, K a multiple of 16; tables see to it that both are less than 2^31. Rows of q
// are q_stride bytes apart, and 16-byte aligned where they have whole 16 bytes of elements.
template <Layout LAYOUT, int THREADS, class Format, class Source>
__device__ __forceinline__ void quantize_whole_blocks(Format format, Source source, uint8_t* q, uint8_t* scales, int64_t M,
                                                      int64_t K, int64_t q_stride, int64_t scales_stride,
                                                      uint32_t cta = blockIdx.x) {
    using In = typename Source::In;
    using Scale = typename Format::Scale;
    constexpr int COLUMNS = 16 * Format::ELEMENTS_PER_BYTE, TURNS = 32 / COLUMNS;
    constexpr int VALUES = In::VALUES, CELLS = COLUMNS / VALUES;  // of a lane and turn
    constexpr int PIECE = 32 * VALUES, PIECE_LANES = PIECE / COLUMNS, TURN_PIECES = 32 / PIECE_LANES;
    constexpr int BLOCKS = COLUMNS > Format::BLOCK ? COLUMNS / Format::BLOCK : 1, BLOCK_CELLS = CELLS / BLOCKS;
    constexpr int BLOCK_LANES = COLUMNS < Format::BLOCK ? Format::BLOCK / COLUMNS : 1;
    constexpr int CELL_BYTES = VALUES / Format::ELEMENTS_PER_BYTE, CELL_WORDS = CELL_BYTES < 4 ? 1 : CELL_BYTES / 4;
    using Scales = ScaleLayout<LAYOUT, Format::BLOCK, TURNS * TURN_PIECES, PIECE, Scale>;

    let_next_kernel_launch();
    const int lane = threadIdx.x % 32, piece = lane / PIECE_LANES;
    const Corner corner = Scales::corner(cta * (THREADS / 32) + threadIdx.x / 32, K);
    wait_for_previous_kernel();
    if (corner.row >= Scales::rows_end(M)) return;
    const uint32_t first_row = corner.row + Scales::row(piece);
    const uint32_t first_column = corner.column + Scales::column(piece) + lane % PIECE_LANES * COLUMNS;
    // From one turn to the next.
    const int row_step = Scales::row(TURN_PIECES) - Scales::row(0), column_step = Scales::column(TURN_PIECES) - Scales::column(0);

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
            if (c * VALUES < columns_left[t]) loaded[t * CELLS + c] = source.load(t * row_step, t * column_step + c * VALUES);
        }
    }
    format.prepare();
    typename In::Cell data[TURNS * CELLS];
    source.finish(loaded, data);

#pragma unroll
    for (int t = 0; t < TURNS; t++) {
        uint32_t scale[BLOCKS];
        float multiplier[BLOCKS];
#pragma unroll
        for (int b = 0; b < BLOCKS; b++) {
            const typename In::Cell* cells = data + t * CELLS + b * BLOCK_CELLS;
            uint32_t magnitude = In::largest(cells[0]);
#pragma unroll
            for (int c = 1; c < BLOCK_CELLS; c++) magnitude = In::larger(magnitude, In::largest(cells[c]));
#pragma unroll
            for (int distance = 1; distance < BLOCK_LANES; distance *= 2)
                magnitude = In::larger(magnitude, __shfl_xor_sync(0xFFFFFFFF, magnitude, distance));
            scale[b] = format.scale_of(In::magnitude_to_float(In::magnitude(magnitude)));
            multiplier[b] = format.multiplier(scale[b]);
        }

        const uint32_t row = first_row + t * row_step, column = first_column + t * column_step;
        // Without the branch the compiler runs out of registers for FP4; FP8 has registers enough, and there it costs 3 %.
        if (TURNS > 1 || columns_left[t] > 0) {
            uint32_t words[4];
#pragma unroll
            for (int c = 0; c < CELLS; c++) {
                uint32_t cell[CELL_WORDS];
                format.template encode_loaded<In>(data[t * CELLS + c], multiplier[c / BLOCK_CELLS], cell);
                if constexpr (CELL_BYTES == 2) {
                    words[c / 2] = c % 2 ? words[c / 2] | cell[0] << 16 : cell[0];
                } else {
#pragma unroll
                    for (int w = 0; w < CELL_WORDS; w++) words[c * CELL_WORDS + w] = cell[w];
                }
            }
            uint8_t* target = q + row * q_stride + column / Format::ELEMENTS_PER_BYTE;
            if (columns_left[t] == COLUMNS && (Format::BLOCK % COLUMNS == 0 || q_stride % 16 == 0)) {
                store_16_bytes(target, words);
            } else if constexpr (Format::BLOCK % COLUMNS != 0) {
                store_8_bytes(target, words);
                if (columns_left[t] == COLUMNS) store_8_bytes(target + 8, words + 2);
            }
        }

        const int scale_columns_left = min(int(Scales::columns_end(K) - column), COLUMNS);
        if (row >= uint32_t(Scales::rows_end(M)) || scale_columns_left <= 0 || lane % BLOCK_LANES != 0) continue;
#pragma unroll
        for (int b = 0; b < BLOCKS; b++)
            if (columns_left[t] <= b * Format::BLOCK) scale[b] = 0;  // padding
        Scale* place = reinterpret_cast<Scale*>(scales) + Scales::place(scales_stride, row, column);
        if (BLOCKS == 2 && scale_columns_left == COLUMNS && reinterpret_cast<uintptr_t>(place) % 2 == 0) {
            *reinterpret_cast<uint16_t*>(place) = scale[0] | scale[BLOCKS - 1] << 8;
        } else {
#pragma unroll
            for (int b = 0; b < BLOCKS; b++)
                if (scale_columns_left > b * Format::BLOCK) place[b] = scale[b];
        }
    }
}

}  // namespace zoo
