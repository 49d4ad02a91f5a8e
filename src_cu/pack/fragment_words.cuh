// Words of eight 4-bit codes, from the order of a checkpoint to the order of packed weights and back. zoo/reference/fragment_words.py states
// the position of each bit. Three kernels use it: fragments.cu, fragments_relative.cu, unfragmented.cu.
//
//     fp8     a word stays a word, and only signs move
//     bf16    four neighbouring lanes q hold instruction q each: 16 columns of two rows. Each lane needs two columns in eight of all four
//             instructions. A byte holds two codes of one lane. So byte permutations collect the words of each lane, and lanes exchange them
#pragma once

#include <cstdint>

#include "common/warp.cuh"

namespace zoo {

// Moves the sign of code j, bit 4 j + 3, to bit 8 j + 7 for the first four codes and to bit 8 (j - 4) + 3 for the last four; and back.
__device__ __forceinline__ uint32_t to_fp8_word(uint32_t codes) {
    const uint32_t first = __byte_perm(codes, 0, 0x1100), others = __byte_perm(codes, 0, 0x3322);
    return codes & 0x77777777 | first << 4 & 0x00800080 | first & 0x80008000 | others & 0x00080008 | others >> 4 & 0x08000800;
}
__device__ __forceinline__ uint32_t from_fp8_word(uint32_t words) {
    const uint32_t first = words >> 4 & 0x00080008 | words & 0x80008000;  // bits 3, 15, 19, 31: signs of codes 0, 1, 2, 3
    const uint32_t others = words & 0x00080008 | words << 4 & 0x80008000;
    const uint32_t low = first | first >> 8, high = others | others >> 8;  // bytes 0 and 2: signs of two codes
    return words & 0x77777777 | __byte_perm(low, high, 0x6420) & 0x88888888;
}

__device__ __forceinline__ uint32_t rotate_left(uint32_t word, int bits) { return __funnelshift_l(word, word, bits); }

// Moves the bits of four bytes, two codes each, to the positions that the decoder expects; and back. Byte r is for register r. The decoder
// rotates the word for registers 0 to 2, and multiplies for register 3. In between, a half of a word holds the first or the second codes of
// two registers, a byte each: 3 and 0, or 2 and 1. So the bits of both registers move together.
__device__ __forceinline__ uint32_t to_bf16_word(uint32_t bytes) {
    const uint32_t seconds = bytes >> 4, of_3_and_0 = __byte_perm(bytes, seconds, 0x4703),
                   of_2_and_1 = __byte_perm(bytes, seconds, 0x5612);
    return of_3_and_0 >> 2 & 0x01C301C3 | of_3_and_0 << 3 & 0x00180018 | of_3_and_0 << 4 & 0x80008000 |
           of_2_and_1 << 1 & 0x0E000E00 | of_2_and_1 << 12 & 0x70007000 | rotate_left(of_2_and_1, 7) & 0x00040004 |
           rotate_left(of_2_and_1, 18) & 0x00200020;
}
__device__ __forceinline__ uint32_t from_bf16_word(uint32_t word) {
    const uint32_t of_3_and_0 = word << 2 & 0x070C070C | word >> 3 & 0x00030003 | word >> 4 & 0x08000800;
    const uint32_t of_2_and_1 = word >> 1 & 0x07000700 | word >> 12 & 0x00070007 | rotate_left(word, 25) & 0x08000800 |
                                rotate_left(word, 14) & 0x00080008;
    return __byte_perm(of_3_and_0 | of_3_and_0 >> 12, of_2_and_1 | of_2_and_1 >> 12, 0x0451);
}

// Byte i of word j becomes byte j of word i.
__device__ __forceinline__ void transpose_bytes(uint32_t (&words)[4]) {
    const uint32_t low[2] = {__byte_perm(words[0], words[1], 0x5140), __byte_perm(words[2], words[3], 0x5140)};
    const uint32_t high[2] = {__byte_perm(words[0], words[1], 0x7362), __byte_perm(words[2], words[3], 0x7362)};
    words[0] = __byte_perm(low[0], low[1], 0x5410), words[1] = __byte_perm(low[0], low[1], 0x7632);
    words[2] = __byte_perm(high[0], high[1], 0x5410), words[3] = __byte_perm(high[0], high[1], 0x7632);
}

// Called by a whole warp. Before, lane q of four holds instruction q: word h + 2 s has row h and eight columns s. Afterwards the lane holds
// its own columns of all four instructions. exchange_from_bf16() is the inverse.
__device__ __forceinline__ void exchange_to_bf16(uint32_t (&words)[4], int q) {
    uint32_t by_lane[4][1];
    transpose_bytes(words);
#pragma unroll
    for (int i = 0; i < 4; i++) by_lane[i][0] = words[i];
    group_transpose(by_lane, q);
#pragma unroll
    for (int i = 0; i < 4; i++) words[i] = to_bf16_word(by_lane[i][0]);
}
__device__ __forceinline__ void exchange_from_bf16(uint32_t (&words)[4], int q) {
    uint32_t by_lane[4][1];
#pragma unroll
    for (int i = 0; i < 4; i++) by_lane[i][0] = from_bf16_word(words[i]);
    group_transpose(by_lane, q);
#pragma unroll
    for (int i = 0; i < 4; i++) words[i] = by_lane[i][0];
    transpose_bytes(words);
}

}  // namespace zoo
