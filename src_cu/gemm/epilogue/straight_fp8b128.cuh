// The scale of a block of fp8b128 without branches, for epilogues: there nothing else runs meanwhile.
#pragma once

#include <cstdint>

#include "common/division.cuh"
#include "quantize/fp8b128.cuh"

namespace zoo {

// The bits of Fp8b128<exact or pow2>, either of which the launch chooses.
struct StraightFp8b128 {
    using Exact = Fp8b128<Scaling::exact>;
    bool pow2;

    // Right where the result is not below SMALLEST, which is all that counts: 448 has 3 bits, so a step is enough.
    __device__ __forceinline__ uint32_t scale_of(float amax) const {
        const uint32_t exact = __float_as_uint(divide<1>(amax, Fp8<e4m3>::MAX, 1.0f / Fp8<e4m3>::MAX));
        const uint32_t power = e8m0_of<Rounding::rceil, Fp8<e4m3>>(amax) << 23;
        const uint32_t scale = max(pow2 ? power : exact, Exact::SMALLEST);
        return __float_as_uint(amax) >= 0x7F800000 ? Exact::NOT_A_NUMBER : amax == 0 ? Exact::ONE : scale;
    }

    // 1 / scale, rounded: that of the mantissa, whose exponent is then lowered by the scale's.
    static __device__ __forceinline__ float multiplier(uint32_t scale) {
        const uint32_t mantissa = scale & 0x007FFFFF, exponent = scale & 0x7F800000;
        const float inverse = reciprocal_of_1_to_2(__uint_as_float(mantissa | 0x3F800000));
        const uint32_t bits = __float_as_uint(inverse) + 0x3F800000 - exponent;
        return __uint_as_float(scale == Exact::NOT_A_NUMBER ? Exact::NOT_A_NUMBER : bits);
    }
};

}  // namespace zoo
