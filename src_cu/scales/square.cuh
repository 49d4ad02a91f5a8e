// Squares of 16 x 16 bytes: the unit of every rearrangement of scales. A thread loads 4 lines of 4 words, transposes them in registers and
// stores 4 lines. A line has 16 bytes on both sides, so no data passes through shared memory or other lanes.
//
// A warp has 8 squares down and 4 across. So it reads a row, and writes a tile or a column, in runs of 64 to 128 bytes: whole sectors.
#pragma once

#include <cstdint>

#include "common/global_memory.cuh"

namespace zoo {

using Square = uint32_t[4][4];  // [line][word]

constexpr int SQUARES_DOWN = 8, SQUARES_ACROSS = 4;  // squares of a warp

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

// Whether all rows start at multiples of 16 bytes, if the first row does and rows are `stride` elements apart.
template <class Element>
__device__ __forceinline__ bool rows_are_aligned(const Element*, int64_t stride) {
    return stride * sizeof(Element) % 16 == 0;
}

// Loads a line of 16 bytes from each of four rows, `step` elements apart. `rows` rows and `left` elements of each exist; both numbers may
// be negative. Everything else is zero.
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

// Stores the lines of a square, with parameters as in load_lines().
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
