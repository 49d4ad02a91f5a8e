// Codes as checkpoints have them, eight in a word, and the words that lanes take: zoo/reference/fragment_words.py says where each bit lies.
//
//     fp8     a word stays one, only signs move
//     bf16    the lanes q of four have instruction q each, 16 columns of two rows, and want two columns in eight of all four: bytes are the pairs of
//             one lane each, so four words become those of four lanes by byte permutations, which are then exchanged
#pragma once

#include <cstdint>

#include "common/warp.cuh"

namespace zoo {

// Eight codes: the signs, bit 4 j + 3 of code j, to bit 8 j + 7 of the first four and bit 8 (j - 4) + 3 of the others; and back.
__device__ __forceinline__ uint32_t braided(uint32_t codes) {
    const uint32_t first = __byte_perm(codes, 0, 0x1100), others = __byte_perm(codes, 0, 0x3322);
    return codes & 0x77777777 | first << 4 & 0x00800080 | first & 0x80008000 | others & 0x00080008 | others >> 4 & 0x08000800;
}
__device__ __forceinline__ uint32_t unbraided(uint32_t words) {
    const uint32_t first = words >> 4 & 0x00080008 | words & 0x80008000;  // bits 3, 15, 19, 31: of codes 0, 1, 2, 3
    const uint32_t others = words & 0x00080008 | words << 4 & 0x80008000;
    const uint32_t low = first | first >> 8, high = others | others >> 8;  // bytes 0 and 2: both signs of a pair
    return words & 0x77777777 | __byte_perm(low, high, 0x6420) & 0x88888888;
}

__device__ __forceinline__ uint32_t turned_left(uint32_t word, int bits) { return __funnelshift_l(word, word, bits); }

// Four pairs of codes, byte r that of register r, to where rotations, and of the last a product, find them; and back. In between, halves of words have
// the first and the second codes of pairs, each in a byte: those of registers 3 and 0, and of 2 and 1, so that bits of both move together.
__device__ __forceinline__ uint32_t nested(uint32_t pairs) {
    const uint32_t seconds = pairs >> 4, of_3_and_0 = __byte_perm(pairs, seconds, 0x4703),
                   of_2_and_1 = __byte_perm(pairs, seconds, 0x5612);
    return of_3_and_0 >> 2 & 0x01C301C3 | of_3_and_0 << 3 & 0x00180018 | of_3_and_0 << 4 & 0x80008000 |
           of_2_and_1 << 1 & 0x0E000E00 | of_2_and_1 << 12 & 0x70007000 | turned_left(of_2_and_1, 7) & 0x00040004 |
           turned_left(of_2_and_1, 18) & 0x00200020;
}
__device__ __forceinline__ uint32_t unnested(uint32_t word) {
    const uint32_t of_3_and_0 = word << 2 & 0x070C070C | word >> 3 & 0x00030003 | word >> 4 & 0x08000800;
    const uint32_t of_2_and_1 = word >> 1 & 0x07000700 | word >> 12 & 0x00070007 | turned_left(word, 25) & 0x08000800 |
                                turned_left(word, 14) & 0x00080008;
    return __byte_perm(of_3_and_0 | of_3_and_0 >> 12, of_2_and_1 | of_2_and_1 >> 12, 0x0451);
}

// Byte i of word j becomes byte j of word i.
__device__ __forceinline__ void transpose_bytes(uint32_t (&words)[4]) {
    const uint32_t low[2] = {__byte_perm(words[0], words[1], 0x5140), __byte_perm(words[2], words[3], 0x5140)};
    const uint32_t high[2] = {__byte_perm(words[0], words[1], 0x7362), __byte_perm(words[2], words[3], 0x7362)};
    words[0] = __byte_perm(low[0], low[1], 0x5410), words[1] = __byte_perm(low[0], low[1], 0x7632);
    words[2] = __byte_perm(high[0], high[1], 0x5410), words[3] = __byte_perm(high[0], high[1], 0x7632);
}

// By a whole warp. Words h + 2 s of row h and the eight columns s of instruction q, of lane q of four, to words of all instructions of its own
// columns; and back.
__device__ __forceinline__ void exchange_codes(uint32_t (&words)[4], int q) {
    uint32_t of_lanes[4][1];
    transpose_bytes(words);
#pragma unroll
    for (int i = 0; i < 4; i++) of_lanes[i][0] = words[i];
    group_transpose(of_lanes, q);
#pragma unroll
    for (int i = 0; i < 4; i++) words[i] = nested(of_lanes[i][0]);
}
__device__ __forceinline__ void return_codes(uint32_t (&words)[4], int q) {
    uint32_t of_lanes[4][1];
#pragma unroll
    for (int i = 0; i < 4; i++) of_lanes[i][0] = unnested(words[i]);
    group_transpose(of_lanes, q);
#pragma unroll
    for (int i = 0; i < 4; i++) words[i] = of_lanes[i][0];
    transpose_bytes(words);
}

}  // namespace zoo
