// Transposition of a square matrix of 4-bit or 8-bit elements in the registers of one lane.
#pragma once

#include <cstdint>

namespace zoo {

// A word is a row, with its first element in the lowest bits: 4 x 4 bytes or 8 x 8 nibbles. For every bit of the row index, rows that
// differ in this bit swap elements.
template <int N>
__device__ __forceinline__ void transpose_cells(uint32_t (&row)[N]) {
    constexpr int BITS = 32 / N;
    static_assert(BITS == 4 || BITS == 8);
#pragma unroll
    for (int distance = 1; distance < N; distance *= 2) {
#pragma unroll
        for (int i = 0; i < N; i++) {
            if (i & distance) continue;
            const uint32_t a = row[i], b = row[i | distance];
            if (distance * BITS == 16) {
                row[i] = __byte_perm(a, b, 0x5410);
                row[i | distance] = __byte_perm(a, b, 0x7632);
            } else if (distance * BITS == 8) {
                row[i] = __byte_perm(a, b, 0x6240);
                row[i | distance] = __byte_perm(a, b, 0x7351);
            } else {
                constexpr uint32_t LOW = 0x0F0F0F0F;
                row[i] = a & LOW | b << 4 & ~LOW;
                row[i | distance] = a >> 4 & LOW | b & ~LOW;
            }
        }
    }
}

}  // namespace zoo
