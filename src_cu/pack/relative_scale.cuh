// Scales of MXFP4 relative to the largest scale of their row. zoo/reference/four_bit_weights.py has the rule. fragments_relative.cu uses it.
//
// A mark is 16 bits, and a word holds the marks of two rows: scale + 1, or 0 for a block without a nonzero code or outside the matrix.
#pragma once

#include <cstdint>

namespace zoo {

constexpr int SCALE_NAN = 255, NO_LARGEST = 127, LARGEST_RELATIVE = 126, LARGEST_EXPONENT = 6;

__device__ __forceinline__ bool has_code(uint4 codes) { return ((codes.x | codes.y | codes.z | codes.w) & 0x77777777) != 0; }

__device__ __forceinline__ uint32_t mark(int scale, uint4 codes) { return scale == SCALE_NAN | has_code(codes) ? scale + 1 : 0; }

// The larger marks of two rows. Marks of NaN do not count.
__device__ __forceinline__ uint32_t larger_marks(uint32_t largest, uint32_t marks) {
    const uint32_t numbers = (marks & 0xFFFF) == SCALE_NAN + 1 ? marks & 0xFFFF0000 : marks;
    return __vmaxu2(largest, numbers >> 16 == SCALE_NAN + 1 ? numbers & 0xFFFF : numbers);
}

// The largest marks of each four neighbouring lanes, in all four lanes.
__device__ __forceinline__ uint32_t largest_of_four_lanes(uint32_t largest) {
    largest = __vmaxu2(largest, __shfl_xor_sync(0xFFFFFFFF, largest, 1));
    return __vmaxu2(largest, __shfl_xor_sync(0xFFFFFFFF, largest, 2));
}

// The largest scale of a row, to which its scales are relative.
__device__ __forceinline__ int largest_scale(uint32_t largest, int half) {
    const int mark = largest >> 16 * half & 0xFFFF;
    return mark == 0 ? NO_LARGEST : mark - 1;
}

// The byte of a packed scale.
__device__ __forceinline__ uint32_t relative_scale(uint32_t marks, int half, int largest) {
    const int mark = marks >> 16 * half & 0xFFFF, scale = mark - 1;
    return scale == SCALE_NAN ? 127 : mark == 0 ? 0 : max(scale - largest + LARGEST_RELATIVE, 0);
}

// How many of eight codes, multiplied by 2^-below, e4m3 cannot hold exactly: 0.5 and 1.5 from below = 9 on, also 1 and 3 from 10 on, all
// except 4 and 0 from 11 on, all except 0 from 12 on.
__device__ __forceinline__ int rounded_codes(uint32_t eight, int below) {
    constexpr uint32_t EACH = 0x11111111;
    const uint32_t low = eight, middle = eight >> 1, high = eight >> 2, any = low | middle | high;
    auto from = [&](int least) { return below >= least ? EACH : 0; };
    return __popc(low & ~high & from(9) | (any & ~high | low & ~middle) & from(10) | any & ~(high & middle & ~low) & from(11) |
                  any & from(12));
}

// The exponent `below` of rounded_codes() for a block.
__device__ __forceinline__ int steps_below(uint32_t marks, int half, int largest) {
    return largest - LARGEST_EXPONENT + 1 - int(marks >> 16 * half & 0xFFFF);
}

__device__ __forceinline__ bool may_be_rounded(uint32_t marks, int half, int largest) {
    return (marks >> 16 * half & 0xFFFF) != 0 & steps_below(marks, half, largest) > 8;
}

// The number of rounded codes in a block.
__device__ __forceinline__ int rounded_codes(uint4 codes, uint32_t marks, int half, int largest) {
    const int below = steps_below(marks, half, largest);
    return rounded_codes(codes.x, below) + rounded_codes(codes.y, below) + rounded_codes(codes.z, below) +
           rounded_codes(codes.w, below);
}

}  // namespace zoo
