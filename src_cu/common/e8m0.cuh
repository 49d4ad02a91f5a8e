// ue8m0, the power-of-two scale of the MX formats: from a block's largest magnitude, and back to a multiplier.
//
// Integer arithmetic on the float32's bits, the same on every architecture. The largest magnitude is never negative,
// so its bits are exponent << 23 | mantissa; infinity and NaN have exponent 255, which is also the NaN of ue8m0.
#pragma once

#include <cstdint>

#include "common/variant.cuh"

namespace zoo {

constexpr uint32_t E8M0_NAN = 255;

// Of a float's bits: up to the next power of two, for which any mantissa bit carries into the exponent. A subnormal has no
// hidden bit and byte 0 means 2^-127 = mantissa 0x400000, so only a larger one carries. NaN may carry past 255.
__device__ __forceinline__ uint32_t e8m0_above(uint32_t bits) {
    const uint32_t carry = bits < 0x00800000 ? 0x003FFFFF : 0x007FFFFF;
    return min((bits + carry) >> 23, E8M0_NAN);
}

// MAX and MAX_EXPONENT of the element: its largest value and that value's exponent.
template <Rounding ROUNDING, class Element>
__device__ __forceinline__ uint32_t e8m0_of(float amax) {
    if constexpr (ROUNDING == Rounding::floor) {
        const int exponent = __float_as_uint(amax) >> 23;
        return exponent == 255 ? E8M0_NAN : max(exponent - Element::MAX_EXPONENT, 0);
    } else {
        return e8m0_above(__float_as_uint(__fmul_rn(amax, 1.0f / Element::MAX)));
    }
}

// The same where the launch chooses: both roundings are one computation, and what differs between them is data. `floor` takes
// the power of two alone: then the product is exact wherever it counts, and nothing carries.
template <class Element>
struct E8m0Rule {
    uint32_t used;  // of the bits of the largest magnitude
    float factor;

    __device__ __forceinline__ explicit E8m0Rule(bool rceil)
        : used(rceil ? 0xFFFFFFFF : 0x7F800000), factor(rceil ? 1.0f / Element::MAX : 1.0f / (1 << Element::MAX_EXPONENT)) {}

    __device__ __forceinline__ uint32_t scale_of(float amax) const {
        const float largest = __uint_as_float(__float_as_uint(amax) & used);
        return e8m0_above(__float_as_uint(__fmul_rn(largest, factor)));
    }
};

// 2^(scale - 127): exact; 2^-127 (scale 0) is a subnormal and kept; NaN for 255.
__device__ __forceinline__ float e8m0_value(uint32_t scale) {
    const int bits = max(static_cast<int>(scale << 23), 0x00400000);
    return __uint_as_float(scale == E8M0_NAN ? 0x7FFFFFFF : bits);
}

// 2^(127 - scale): exact; 2^-127 (scale 254) is a subnormal and kept; NaN for 255.
__device__ __forceinline__ float e8m0_inverse(uint32_t scale) {
    const int bits = max(static_cast<int>(254 - scale) * (1 << 23), 0x00400000);
    return __uint_as_float(scale == E8M0_NAN ? 0x7FFFFFFF : bits);
}

}  // namespace zoo
