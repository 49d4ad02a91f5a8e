// e2m1, the 4-bit float: codes 0 to 7 are 0, 0.5, 1, 1.5, 2, 3, 4, 6, and codes 8 to 15 are their negatives.
//
// Encoding rounds to nearest even and saturates at 6; NaN becomes +0, as the block formats demand. The first element is in the lowest
// nibble. Blackwell has an instruction for two elements; Hopper needs ordinary arithmetic.
#pragma once

#include <cstdint>
#include <cuda_fp16.h>

#include "common/variant.cuh"

namespace zoo {

struct E2m1 {
    static constexpr float MAX = 6.0f;
    static constexpr int MAX_EXPONENT = 2;
    static constexpr int MANTISSA_BITS = 1;
};

#if __CUDA_ARCH__ >= 1000

// Encodes values[i] * multiplier. COUNT is 4 or 8.
template <int COUNT>
__device__ __forceinline__ uint32_t e2m1_encode(const float* values, float multiplier) {
    uint32_t codes = 0;
#pragma unroll
    for (int i = 0; i < COUNT; i += 2) {
        float first = values[i] * multiplier, second = values[i + 1] * multiplier;
        // The instruction would turn NaN into 6.
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
//     m / 0.5        correct below 2, where elements are 0.5 apart       too large above 2
//     m / 1 + 2      correct from 2 to 4                                 too large outside
//     m / 2 + 4      correct from 4 on                                   too large below 4
//
// The parity of each number is the parity of the code, so ties go to the even code. Adding 2^k rounds a float to a multiple of its last
// bit and leaves the number of multiples in the low bits. First m is divided by 8 and clamped to [0, 1], which turns NaN into 0.
// Values from 7 on get code 8. The last line repairs it for all nibbles at once.
//
// The result holds the codes of |values| * 8 * eighth without signs; higher bits are 0.
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
    codes -= HALVES * 17;  // offsets of the first two elements; other offsets were shifted out
    return codes - ((codes & 0x88888888) >> 3);
}

template <int COUNT>
__device__ __forceinline__ uint32_t e2m1_encode(const float* values, float multiplier) {
    float scaled[COUNT];
    uint32_t signs = 0;
#pragma unroll
    for (int i = COUNT - 1; i >= 0; i--) {
        scaled[i] = values[i] * multiplier;
        signs = __funnelshift_l(__float_as_uint(scaled[i]), signs, 4);  // a sign and three bits of the exponent
    }
    constexpr uint32_t SIGNS = COUNT == 8 ? 0x88888888 : 0x88888888 & ((1u << 4 * COUNT % 32) - 1);
    return e2m1_magnitudes<COUNT>(scaled, 0.125f) | signs & SIGNS;
}

#endif

// Decodes two e2m1 exactly through f16, in the same way on every architecture. The three bits of exponent and mantissa go to the low bits
// of an f16's exponent and the high bit of its mantissa. A factor of 2^14 corrects the bias, also for the subnormal 0.5. Each element of
// byte BYTE first goes to the high nibble of the high byte of a half.
template <int BYTE>
__device__ __forceinline__ float2 decode_two_e2m1(uint32_t nibbles, uint32_t nibbles_up) {
    const uint32_t apart = __byte_perm(nibbles, nibbles_up, BYTE << 12 | (4 + BYTE) << 4);
    const uint32_t halves = (apart & 0x80008000) | (apart >> 3 & 0x0E000E00);
    constexpr uint32_t BIAS = 0x74007400;  // 2^14
    uint32_t product;
    asm("mul.rn.f16x2 %0, %1, %2;" : "=r"(product) : "r"(halves), "r"(BIAS));
    return __half22float2(*reinterpret_cast<__half2*>(&product));
}

// Decodes the first COUNT of eight elements, exactly.
template <int COUNT>
__device__ __forceinline__ void decode_e2m1(uint32_t nibbles, float (&values)[COUNT]) {
    const uint32_t up = nibbles << 4;
    const float2 pairs[4] = {decode_two_e2m1<0>(nibbles, up), decode_two_e2m1<1>(nibbles, up), decode_two_e2m1<2>(nibbles, up),
                             decode_two_e2m1<3>(nibbles, up)};
#pragma unroll
    for (int i = 0; i < COUNT; i++) values[i] = i % 2 ? pairs[i / 2].y : pairs[i / 2].x;
}

}  // namespace zoo
