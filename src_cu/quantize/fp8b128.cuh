// The format fp8b128: 128 values (at the end of a row, fewer) share a float32 scale; an element is e4m3.
#pragma once

#include <cstdint>

#include "common/e8m0.cuh"
#include "common/fp8.cuh"
#include "common/variant.cuh"

namespace zoo {

template <Scaling SCALING>
struct Fp8b128 {
    static constexpr int BLOCK = 128;
    static constexpr int ELEMENTS_PER_BYTE = 1;
    static constexpr bool DIVIDES_SCALES = true;
    using Scale = uint32_t;  // the bits of the float32

    static constexpr uint32_t SMALLEST = 0x00800000;  // 2^-126: a normal number, and so is its inverse
    static constexpr uint32_t ONE = 0x3F800000, NOT_A_NUMBER = 0x7FFFFFFF;

    __device__ __forceinline__ void prepare() {}

    static __device__ __forceinline__ uint32_t scale_of(float amax) {
        uint32_t scale;
        if constexpr (SCALING == Scaling::pow2)
            scale = e8m0_of<Rounding::rceil, Fp8<e4m3>>(amax) << 23;
        else
            scale = __float_as_uint(__fdiv_rn(amax, Fp8<e4m3>::MAX));
        scale = max(scale, SMALLEST);
        scale = amax == 0.0f ? ONE : scale;
        return __float_as_uint(amax) < 0x7F800000 ? scale : NOT_A_NUMBER;
    }

    __device__ __forceinline__ float multiplier(uint32_t scale) const {
        if constexpr (SCALING == Scaling::pow2)  // 2^e -> 2^-e, with 2 * 127 as the sum of the exponent fields
            return __uint_as_float(scale == NOT_A_NUMBER ? NOT_A_NUMBER : 0x7F000000 - scale);
        else
            return __frcp_rn(__uint_as_float(scale));
    }

    // Four elements a word, the first in the lowest byte. A NaN multiplier makes all NaN.
    template <class In, int WORDS>
    __device__ __forceinline__ void encode_loaded(const typename In::Cell& loaded, float multiplier,
                                                  uint32_t (&words)[WORDS]) const {
        static_assert(WORDS * 4 == In::VALUES);
        float values[In::VALUES];
        In::to_float(loaded, values);
#pragma unroll
        for (int w = 0; w < WORDS; w++) {
            const float* four = values + 4 * w;
            const uint32_t low = Fp8<e4m3>::encode(four[0] * multiplier, four[1] * multiplier);
            const uint32_t high = Fp8<e4m3>::encode(four[2] * multiplier, four[3] * multiplier);
            words[w] = high << 16 | low;
        }
    }
};

}  // namespace zoo
