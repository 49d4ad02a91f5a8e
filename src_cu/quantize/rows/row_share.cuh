// A share is what one warp quantises: 1024 columns of a row, stores included. The warp loads and encodes its share, and stores
// it in plain or fragment order. Included by rows/token_rows.cuh and kernels/rows_fragments.cu.
//
// A lane has CELLS cells of 16 bytes of x. Its cells are PIECE = 256 columns apart. Elements are narrower than x, so lanes
// exchange words until each stores 16 bytes of q:
//
//   plain order     Two neighbours have 16 columns of each cell. One lane stores the even cells, the other the odd cells.
//   fragments       In each 64 bytes of q the 4 x 4 words are transposed. Eight lanes have 64 columns of each cell. Even lanes
//                   hold words 0 and 1 of each 16 columns, odd lanes words 2 and 3. First, four lanes that are two apart
//                   transpose their cells, until each has 4 x 16 columns of one cell. Its words 0 are 16 bytes of q, and so
//                   are its words 1. Then neighbours swap 16 bytes, so that each stores two times 16 bytes.
#pragma once

#include <cstdint>

#include "common/global_memory.cuh"
#include "common/warp.cuh"

namespace zoo {

// The source is described in rows/matrix.cuh. K is a multiple of 16. Rows of q start at multiples of 16 bytes.
template <class Format, class Source>
struct RowShare {
    using In = typename Source::In;
    using Cell = typename In::Cell;
    static constexpr int CELLS = 4, VALUES = 8, PIECE = 32 * VALUES, COLUMNS = CELLS * PIECE;
    static_assert(In::VALUES == VALUES, "cells of 16 bytes of 2-byte floats");

    Source source;
    int lane, first_column, step, K;  // the lane's first column; columns from one iteration to the next
    bool has_data;                    // false: the row is zeros

    __device__ __forceinline__ void load(int iteration, Cell (&cells)[CELLS]) const {
        typename Source::Loaded loaded[CELLS];
#pragma unroll
        for (int i = 0; i < CELLS; i++) {
            loaded[i] = {};
            const int ahead = iteration * step + i * PIECE;
            if (has_data && first_column + ahead < K) loaded[i] = source.load(0, ahead);
        }
        source.finish(loaded, cells);
    }

    __device__ __forceinline__ void store(const Cell (&cells)[CELLS], const Format& format, float multiplier, int iteration,
                                          bool fragments, uint8_t* row) const {
        uint32_t words[CELLS][2];
        const int column = first_column + iteration * step;
#pragma unroll
        for (int i = 0; i < CELLS; i++) format.template encode_loaded<In>(cells[i], multiplier, words[i]);
        if (fragments)
            store_fragments(words, column, row);
        else
            store_columns(words, column, row);
    }

    __device__ __forceinline__ void store_columns(const uint32_t (&words)[CELLS][2], int column, uint8_t* row) const {
        const int target = column - lane % 2 * VALUES + lane % 2 * PIECE;
#pragma unroll
        for (int i = 0; i < CELLS; i += 2) {
            uint32_t both[2][2] = {{words[i][0], words[i][1]}, {words[i + 1][0], words[i + 1][1]}};
            group_transpose(both, lane % 2);
            const uint32_t whole[4] = {both[0][0], both[0][1], both[1][0], both[1][1]};
            if (target + i * PIECE < K) store_16_bytes(row + target + i * PIECE, whole);
        }
    }

    __device__ __forceinline__ void store_fragments(uint32_t (&words)[CELLS][2], int column, uint8_t* row) const {
        const int cell = lane / 2 % 4, odd = lane % 2;
#pragma unroll
        for (int i = 0; i < CELLS; i++)
            if (column + i * PIECE >= K) words[i][0] = words[i][1] = 0;  // a NaN multiplier made NaN of these
        group_transpose<2>(words, cell);
        uint32_t first[4], second[4];
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const uint32_t received = __shfl_xor_sync(0xFFFFFFFF, odd ? words[i][0] : words[i][1], 1);
            first[i] = odd ? received : words[i][0];
            second[i] = odd ? words[i][1] : received;
        }
        const int chunk = column - lane % 8 * VALUES + cell * PIECE;
        if (chunk >= K) return;
        store_16_bytes(row + chunk + 16 * odd, first);
        store_16_bytes(row + chunk + 32 + 16 * odd, second);
    }
};

}  // namespace zoo
