// Computes the scale of an fp8b128 block without branches, for epilogues: no other warp hides the latency of a branch there. Included by the
// gated kernels of Hopper that write fp8b128.
#pragma once

#include <cstdint>

#include "common/division.cuh"
#include "common/formats/fp8b128.cuh"

namespace zoo {

// Computes the bits of Fp8b128<exact> or Fp8b128<pow2>, as the launch chooses.
struct BranchlessFp8b128 {
    using Exact = Fp8b128<Scaling::exact>;
    bool pow2;

    // One step of divide() is exact for results from SMALLEST on, because 448 has 3 significant bits. Smaller results are replaced.
    __device__ __forceinline__ uint32_t scale_of(float amax) const {
        const uint32_t exact = __float_as_uint(divide<1>(amax, Fp8<e4m3>::MAX, 1.0f / Fp8<e4m3>::MAX));
        const uint32_t power = e8m0_of<Rounding::rceil, Fp8<e4m3>>(amax) << 23;
        const uint32_t scale = max(pow2 ? power : exact, Exact::SMALLEST);
        return __float_as_uint(amax) >= 0x7F800000 ? Exact::NOT_A_NUMBER : amax == 0 ? Exact::ONE : scale;
    }

    // 1 / scale, rounded: the reciprocal of the mantissa, whose exponent is then lowered by the exponent of the scale.
    static __device__ __forceinline__ float multiplier(uint32_t scale) {
        const uint32_t mantissa = scale & 0x007FFFFF, exponent = scale & 0x7F800000;
        const float inverse = reciprocal_of_1_to_2(__uint_as_float(mantissa | 0x3F800000));
        const uint32_t bits = __float_as_uint(inverse) + 0x3F800000 - exponent;
        return __uint_as_float(scale == Exact::NOT_A_NUMBER ? Exact::NOT_A_NUMBER : bits);
    }
};

}  // namespace zoo
