// ue8m0, a power of two in a byte: the scale of MX formats, from the largest magnitude of a block and back to a multiplier.
//
// Integer arithmetic on the bits of a float32 gives equal results on every architecture. The largest magnitude is never negative, so its
// bits are exponent << 23 | mantissa. Infinity and NaN have exponent 255, which is also the NaN of ue8m0.
#pragma once

#include <cstdint>

#include "common/variant.cuh"

namespace zoo {

constexpr uint32_t E8M0_NAN = 255;

// Rounds a float's bits up to a power of two: any mantissa bit carries into the exponent. Subnormals have no hidden bit, and byte 0 means
// 2^-127, a mantissa of 0x400000: only a larger mantissa carries. NaN may carry past 255.
__device__ __forceinline__ uint32_t e8m0_above(uint32_t bits) {
    const uint32_t carry = bits < 0x00800000 ? 0x003FFFFF : 0x007FFFFF;
    return min((bits + carry) >> 23, E8M0_NAN);
}

// Element::MAX is the largest value of an element, Element::MAX_EXPONENT the exponent of this value.
template <Rounding ROUNDING, class Element>
__device__ __forceinline__ uint32_t e8m0_of(float amax) {
    if constexpr (ROUNDING == Rounding::floor) {
        const int exponent = __float_as_uint(amax) >> 23;
        return exponent == 255 ? E8M0_NAN : max(exponent - Element::MAX_EXPONENT, 0);
    } else {
        return e8m0_above(__float_as_uint(__fmul_rn(amax, 1.0f / Element::MAX)));
    }
}

// The rounding as data, if the launch chooses it. `floor` masks the mantissa: then the product is exact and nothing carries.
template <class Element>
struct E8m0Rule {
    uint32_t used;  // mask for the bits of the largest magnitude
    float factor;

    __device__ __forceinline__ explicit E8m0Rule(bool rceil)
        : used(rceil ? 0xFFFFFFFF : 0x7F800000), factor(rceil ? 1.0f / Element::MAX : 1.0f / (1 << Element::MAX_EXPONENT)) {}

    __device__ __forceinline__ uint32_t scale_of(float amax) const {
        const float largest = __uint_as_float(__float_as_uint(amax) & used);
        return e8m0_above(__float_as_uint(__fmul_rn(largest, factor)));
    }
};

// Two more roundings, also as data. `even` rounds the largest magnitude to the mantissa bits of an element before it takes the exponent, and
// `ceil` takes the next power of two. Adding `carry` raises the exponent where the mantissa is large enough. A magnitude that `even` rounds to
// 2^128 has no scale.
template <class Element>
struct E8m0EvenOrCeil {
    uint32_t carry, first_without_scale;

    __device__ __forceinline__ explicit E8m0EvenOrCeil(bool ceil)
        : carry(ceil ? 0x007FFFFF : 0x00400000 >> Element::MANTISSA_BITS),
          first_without_scale(ceil ? 0x7F800000 : 0x7F800000 - carry) {}

    __device__ __forceinline__ uint32_t scale_of(float amax) const {
        const uint32_t bits = __float_as_uint(amax);
        const int exponent = (bits + carry) >> 23;
        return bits >= first_without_scale ? E8M0_NAN : max(exponent - Element::MAX_EXPONENT, 0);
    }
};

// 2^(scale - 127), exactly; NaN for 255. The scale 0 gives the subnormal 2^-127.
__device__ __forceinline__ float e8m0_value(uint32_t scale) {
    const int bits = max(static_cast<int>(scale << 23), 0x00400000);
    return __uint_as_float(scale == E8M0_NAN ? 0x7FFFFFFF : bits);
}

// 2^(127 - scale), exactly; NaN for 255. The scale 254 gives the subnormal 2^-127.
__device__ __forceinline__ float e8m0_inverse(uint32_t scale) {
    const int bits = max(static_cast<int>(254 - scale) * (1 << 23), 0x00400000);
    return __uint_as_float(scale == E8M0_NAN ? 0x7FFFFFFF : bits);
}

// The ue8m0 byte of a float32 that is a power of two from 2^-127 on. 0 is padding and stays 0. Everything else becomes NaN, 255.
__device__ __forceinline__ uint32_t e8m0_of_power_of_two(uint32_t bits) {
    constexpr uint32_t SMALLEST = 0x00400000;  // 2^-127, a subnormal
    if (bits == SMALLEST) return 0;
    return bits & 0x807FFFFF ? 255 : bits >> 23;
}

}  // namespace zoo
