// Every rearrangement of scales moves squares: a thread holds 4 lines of 4 words and writes the transposed 4 lines. So a
// line is 16 bytes on either side, and nothing goes through shared memory or another lane.
//
// A warp takes 8 squares down and 4 across, so that a row is read, and a tile or a column written, in runs of 64 to 128
// bytes: whole sectors on both sides.
#pragma once

#include <cstdint>

#include "common/global_memory.cuh"

namespace zoo {

using Square = uint32_t[4][4];  // [line][word]

constexpr int SQUARES_DOWN = 8, SQUARES_ACROSS = 4;  // of a warp

__device__ __forceinline__ void transpose(Square& square) {
#pragma unroll
    for (int i = 1; i < 4; i++)
#pragma unroll
        for (int j = 0; j < i; j++) {
            const uint32_t word = square[i][j];
            square[i][j] = square[j][i];
            square[j][i] = word;
        }
}

// Whether every row starts at a multiple of 16 bytes when the first does and they lie `stride` elements apart.
template <class Element>
__device__ __forceinline__ bool rows_are_aligned(const Element*, int64_t stride) {
    return stride * sizeof(Element) % 16 == 0;
}

// Lines of 16 bytes of four rows, `step` elements apart. The first `rows` of them exist, and `left` elements of each
// (either may be negative); the rest is zero.
template <class Element>
__device__ __forceinline__ void load_lines(Square& square, const Element* line, int64_t step, int64_t rows, int64_t left,
                                           bool aligned) {
    constexpr int ELEMENTS = 16 / sizeof(Element), BITS = 8 * sizeof(Element);
    if (aligned && left >= ELEMENTS) {
        uint4 loaded[4];
#pragma unroll
        for (int i = 0; i < 4; i++) {
            loaded[i] = make_uint4(0, 0, 0, 0);
            if (i < rows) loaded[i] = load_16_bytes(line + i * step);
        }
#pragma unroll
        for (int i = 0; i < 4; i++) {
            square[i][0] = loaded[i].x, square[i][1] = loaded[i].y;
            square[i][2] = loaded[i].z, square[i][3] = loaded[i].w;
        }
    } else {
#pragma unroll
        for (int i = 0; i < 4; i++) {
#pragma unroll
            for (int w = 0; w < 4; w++) square[i][w] = 0;
#pragma unroll
            for (int e = 0; e < ELEMENTS; e++)
                if (i < rows && e < left) square[i][e * BITS / 32] |= uint32_t(line[i * step + e]) << e * BITS % 32;
        }
    }
}

// The same the other way round.
template <class Element>
__device__ __forceinline__ void store_lines(const Square& square, Element* line, int64_t step, int64_t rows, int64_t left,
                                            bool aligned) {
    constexpr int ELEMENTS = 16 / sizeof(Element), BITS = 8 * sizeof(Element);
    if (aligned && left >= ELEMENTS) {
#pragma unroll
        for (int i = 0; i < 4; i++)
            if (i < rows) store_16_bytes(line + i * step, square[i]);
    } else {
#pragma unroll
        for (int i = 0; i < 4; i++)
#pragma unroll
            for (int e = 0; e < ELEMENTS; e++)
                if (i < rows && e < left) line[i * step + e] = Element(square[i][e * BITS / 32] >> e * BITS % 32);
    }
}

}  // namespace zoo
