// The direction `rows` where a whole row shares a scale: a row is read once, and waits in registers for its largest magnitude.
//
//   a CTA         several rows side by side, `warps_of_row` warps each; what is left over of its warps idles
//   a warp        1024 columns of its row a turn, four cells of 16 bytes a lane, 256 columns from one to the next. A row of more than
//                 all warps of a CTA take in a turn is read twice but for its last turn, the second time from L2.
//
// Elements are narrower than x, so lanes exchange words and store 16 bytes. Which ones depends on the order of the columns of q:
//
//   as in x         two neighbours have 16 columns of each cell; one stores those of the even cells, the other those of the odd ones
//   fragments       in each 64 bytes of q the 4 x 4 words are transposed. Eight lanes have 64 columns of each cell; those at even places
//                   have words 0 and 1 of each 16, those at odd places 2 and 3. So four lanes, two apart, swap cells until each has
//                   one cell of all four: words 0 of 4 x 16 columns are 16 bytes of q, so are words 1. Neighbours then swap 16
//                   bytes, so that those which they store lie side by side.
#pragma once

#include <cstdint>

#include "common/dependent_launch.cuh"
#include "common/global_memory.cuh"
#include "common/warp.cuh"
#include "quantize/input.cuh"

namespace zoo {

// What a warp does with its share of a row. A source is as in whole_blocks.cuh. K is a multiple of 16, rows of q start at multiples of
// 16 bytes.
template <class Format, class Source>
struct ShareOfRow {
    using In = typename Source::In;
    using Cell = typename In::Cell;
    static constexpr int CELLS = 4, VALUES = 8, PIECE = 32 * VALUES, COLUMNS = CELLS * PIECE, CHUNK = 64;
    static_assert(In::VALUES == VALUES, "cells of 16 bytes of 2-byte floats");

    Source source;
    int lane, first_column, step, K;  // the lane's first column, columns from turn to turn
    bool given;                       // or the row is zeros

    __device__ __forceinline__ void load(int turn, Cell (&cells)[CELLS]) const {
        typename Source::Loaded loaded[CELLS];
#pragma unroll
        for (int i = 0; i < CELLS; i++) {
            loaded[i] = {};
            const int ahead = turn * step + i * PIECE;
            if (given && first_column + ahead < K) loaded[i] = source.load(0, ahead);
        }
        source.finish(loaded, cells);
    }

    __device__ __forceinline__ void store(const Cell (&cells)[CELLS], const Format& format, float multiplier, int turn,
                                          bool fragments, uint8_t* row) const {
        uint32_t words[CELLS][2];
        const int column = first_column + turn * step;
#pragma unroll
        for (int i = 0; i < CELLS; i++) {
            format.template encode_loaded<In>(cells[i], multiplier, words[i]);
            if (column + i * PIECE >= K) words[i][0] = words[i][1] = 0;  // next to NaN, too
        }
        if (fragments)
            store_fragments(words, column, row);
        else
            store_columns(words, column, row);
    }

    __device__ __forceinline__ void store_columns(const uint32_t (&words)[CELLS][2], int column, uint8_t* row) const {
        const int place = column - lane % 2 * VALUES + lane % 2 * PIECE;
#pragma unroll
        for (int i = 0; i < CELLS; i += 2) {
            uint32_t both[2][2] = {{words[i][0], words[i][1]}, {words[i + 1][0], words[i + 1][1]}};
            group_transpose(both, lane % 2);
            const uint32_t whole[4] = {both[0][0], both[0][1], both[1][0], both[1][1]};
            if (place + i * PIECE < K) store_16_bytes(row + place + i * PIECE, whole);
        }
    }

    __device__ __forceinline__ void store_fragments(uint32_t (&words)[CELLS][2], int column, uint8_t* row) const {
        const int cell = lane / 2 % 4, odd = lane % 2;
        group_transpose<2>(words, cell);
        uint32_t first[4], second[4];
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const uint32_t received = __shfl_xor_sync(0xFFFFFFFF, words[i][odd ? 0 : 1], 1);
            first[i] = odd ? received : words[i][0];
            second[i] = odd ? words[i][1] : received;
        }
        const int chunk = column - lane % 8 * VALUES + cell * PIECE;
        if (chunk >= K) return;
        store_16_bytes(row + chunk + 16 * odd, first);
        store_16_bytes(row + chunk + 32 + 16 * odd, second);
    }
};

// Row i of q is row index[i] of x, or zeros where that is negative; without an index, row i.
template <int THREADS, class Format, class Source>
__device__ __forceinline__ void quantize_token_rows(Format format, Source source, const int* index, uint8_t* q, float* scales,
                                                    int M, int K, int64_t q_stride, int warps_of_row, bool fragments) {
    using Share = ShareOfRow<Format, Source>;
    using In = typename Source::In;
    constexpr int WARPS = THREADS / 32;
    static_assert(WARPS <= 32, "a lane for each warp");
    __shared__ uint32_t of_warps[WARPS];

    let_next_kernel_launch();
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const int row_of_cta = warp / warps_of_row, warp_of_row = warp % warps_of_row, rows_of_cta = WARPS / warps_of_row;
    const int64_t target = int64_t(blockIdx.x) * rows_of_cta + row_of_cta;
    const bool has_row = row_of_cta < rows_of_cta && target < M;
    const int first_column = warp_of_row * Share::COLUMNS + lane * Share::VALUES, step = warps_of_row * Share::COLUMNS;
    const int turns = (K + step - 1) / step;
    wait_for_previous_kernel();
    const int64_t taken = !has_row ? -1 : index == nullptr ? target : load_int(index + target);
    if (taken >= 0) source.start_at(taken, first_column);
    const Share share{source, lane, first_column, step, K, taken >= 0};

    typename In::Cell cells[Share::CELLS];
    uint32_t largest = 0;
#pragma unroll 1
    for (int turn = 0; turn < turns; turn++) {
        share.load(turn, cells);
#pragma unroll
        for (int i = 0; i < Share::CELLS; i++) largest = max(largest, In::magnitude(In::largest(cells[i])));
    }
    largest = __reduce_max_sync(0xFFFFFFFF, largest);
    if (warps_of_row > 1) {
        if (lane == 0) of_warps[warp] = largest;
        __syncthreads();
        largest = __reduce_max_sync(0xFFFFFFFF, of_warps[min(warp - warp_of_row + min(lane, warps_of_row - 1), WARPS - 1)]);
    }
    if (!has_row) return;
    const uint32_t scale = format.scale_of(In::magnitude_to_float(largest));
    const float multiplier = format.multiplier(scale);
    if (warp_of_row == 0 && lane == 0) scales[target] = __uint_as_float(scale);
#pragma unroll 1
    for (int turn = turns - 1; turn >= 0; turn--) {  // the last one is there
        if (turn < turns - 1) share.load(turn, cells);
        share.store(cells, format, multiplier, turn, fragments, q + target * q_stride);
    }
}

}  // namespace zoo
