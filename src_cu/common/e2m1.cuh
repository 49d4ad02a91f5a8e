// e2m1, the 4-bit float: 0, 0.5, 1, 1.5, 2, 3, 4, 6 and their negatives are codes 0 to 7 and 8 to 15.
//
// float32 -> e2m1: round to nearest even, saturating at 6; NaN -> +0, as the block formats ask. The first element is
// in the lowest nibble. Blackwell has an instruction for two elements; Hopper does it in ordinary arithmetic.
#pragma once

#include <cstdint>

#include "common/variant.cuh"

namespace zoo {

struct E2m1 {
    static constexpr float MAX = 6.0f;
    static constexpr int MAX_EXPONENT = 2;
};

#if __CUDA_ARCH__ >= 1000

// COUNT elements, values[i] * multiplier; 4 or 8.
template <int COUNT>
__device__ __forceinline__ uint32_t e2m1_encode(const float* values, float multiplier) {
    uint32_t codes = 0;
#pragma unroll
    for (int i = 0; i < COUNT; i += 2) {
        float first = values[i] * multiplier, second = values[i + 1] * multiplier;
        // The instruction makes 6 of NaN.
        first = first == first ? first : 0.0f;
        second = second == second ? second : 0.0f;
        uint32_t pair;
        asm("{\n\t"
            ".reg .b8 pair;\n\t"
            "cvt.rn.satfinite.e2m1x2.f32 pair, %1, %2;\n\t"
            "cvt.u32.u8 %0, pair;\n\t"
            "}"
            : "=r"(pair)
            : "f"(second), "f"(first));
        codes |= pair << 4 * i;
    }
    return codes;
}

#else

// The code of a magnitude m is the least of three roundings to whole numbers, each to nearest even:
//
//     m / 0.5        right below 2, where elements are 0.5 apart       grows twice as fast as m, too large above 2
//     m / 1 + 2      right from 2 to 4                                 too large outside
//     m / 2 + 4      right from 4 on                                   too large below 4
//
// Parities agree with the codes', so ties go to the even code. Adding 2^k rounds a float to a multiple of its last bit
// there and leaves the number of multiples in the low bits. m is first divided by 8 and clamped to [0, 1], which also
// turns NaN into 0: values from 7 on get code 8, which is mended when all nibbles are together.
//
// Codes of |values| * 8 * eighth, without signs; bits past them are 0.
template <int COUNT>
__device__ __forceinline__ uint32_t e2m1_magnitudes(const float* values, float eighth) {
    static_assert(COUNT >= 2 && COUNT <= 8);
    constexpr uint32_t HALVES = 0x49000000, ONES = 0x49800000, TWOS = 0x4A000000;  // 2^19, 2^20, 2^21
    uint32_t codes = 0;
#pragma unroll
    for (int i = COUNT - 1; i >= 0; i--) {
        const float value = __saturatef(fabsf(values[i]) * eighth);
        const uint32_t halves = __float_as_uint(value + __uint_as_float(HALVES));
        const uint32_t ones = __float_as_uint(value + __uint_as_float(ONES)) + (2 + HALVES - ONES);
        const uint32_t twos = __float_as_uint(value + __uint_as_float(TWOS)) + (4 + HALVES - TWOS);
        codes = codes * 16 + min(min(halves, ones), twos);
    }
    codes -= HALVES * 17;  // of the first two; those of the others were shifted out
    return codes - ((codes & 0x88888888) >> 3);
}

template <int COUNT>
__device__ __forceinline__ uint32_t e2m1_encode(const float* values, float multiplier) {
    float scaled[COUNT];
    uint32_t signs = 0;
#pragma unroll
    for (int i = COUNT - 1; i >= 0; i--) {
        scaled[i] = values[i] * multiplier;
        signs = __funnelshift_l(__float_as_uint(scaled[i]), signs, 4);  // and three bits of the exponent
    }
    constexpr uint32_t SIGNS = COUNT == 8 ? 0x88888888 : 0x88888888 & ((1u << 4 * COUNT % 32) - 1);
    return e2m1_magnitudes<COUNT>(scaled, 0.125f) | signs & SIGNS;
}

#endif

}  // namespace zoo
