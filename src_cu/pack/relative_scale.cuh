// Scales of MXFP4 relative to the largest of their row: zoo/reference/four_bit_weights.py has the rule.
//
// Marks are scales of two rows in one word, a half for each row: 0 for a block without a code, or outside the matrix, or else the scale
// and 1.
#pragma once

#include <cstdint>

#include "common/warp.cuh"

namespace zoo {

constexpr int NO_NUMBER = 255, NO_LARGEST = 127, LARGEST_STORED = 126, LARGEST_EXPONENT = 6;

__device__ __forceinline__ bool any_code(uint4 codes) { return ((codes.x | codes.y | codes.z | codes.w) & 0x77777777) != 0; }

__device__ __forceinline__ uint32_t mark(int scale, uint4 codes) { return scale == NO_NUMBER | any_code(codes) ? scale + 1 : 0; }

// The largest marks of two rows but for those of no numbers.
__device__ __forceinline__ uint32_t larger_marks(uint32_t largest, uint32_t marks) {
    const uint32_t numbers = (marks & 0xFFFF) == NO_NUMBER + 1 ? marks & 0xFFFF0000 : marks;
    return __vmaxu2(largest, numbers >> 16 == NO_NUMBER + 1 ? numbers & 0xFFFF : numbers);
}

// Of each four neighbouring lanes, in all of them.
__device__ __forceinline__ uint32_t largest_of_four_lanes(uint32_t largest) {
    largest = __vmaxu2(largest, __shfl_xor_sync(0xFFFFFFFF, largest, 1));
    return __vmaxu2(largest, __shfl_xor_sync(0xFFFFFFFF, largest, 2));
}

// What the scales of a row are relative to.
__device__ __forceinline__ int largest_scale(uint32_t largest, int half) {
    const int mark = largest >> 16 * half & 0xFFFF;
    return mark == 0 ? NO_LARGEST : mark - 1;
}

// The byte that is stored.
__device__ __forceinline__ uint32_t relative_scale(uint32_t marks, int half, int largest) {
    const int mark = marks >> 16 * half & 0xFFFF, scale = mark - 1;
    return scale == NO_NUMBER ? 127 : mark == 0 ? 0 : max(scale - largest + LARGEST_STORED, 0);
}

// How many of eight codes, which are multiplied by 2^-below, are no multiples of e4m3's smallest step: from 9 on 0.5 and 1.5, from 10
// on 1 and 3, too, from 11 on all but 4, from 12 on all but 0.
__device__ __forceinline__ int rounded_codes(uint32_t eight, int below) {
    constexpr uint32_t EACH = 0x11111111;
    const uint32_t low = eight, middle = eight >> 1, high = eight >> 2, any = low | middle | high;
    auto from = [&](int least) { return below >= least ? EACH : 0; };
    return __popc(low & ~high & from(9) | (any & ~high | low & ~middle) & from(10) | any & ~(high & middle & ~low) & from(11) |
                  any & from(12));
}

// `below` of a block's codes.
__device__ __forceinline__ int steps_below(uint32_t marks, int half, int largest) {
    return largest - LARGEST_EXPONENT + 1 - int(marks >> 16 * half & 0xFFFF);
}

__device__ __forceinline__ bool may_be_rounded(uint32_t marks, int half, int largest) {
    return (marks >> 16 * half & 0xFFFF) != 0 & steps_below(marks, half, largest) > 8;
}

// Of a block.
__device__ __forceinline__ int rounded_codes(uint4 codes, uint32_t marks, int half, int largest) {
    const int below = steps_below(marks, half, largest);
    return rounded_codes(codes.x, below) + rounded_codes(codes.y, below) + rounded_codes(codes.z, below) +
           rounded_codes(codes.w, below);
}

}  // namespace zoo
