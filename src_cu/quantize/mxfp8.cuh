// The format MXFP8: 32 values share a ue8m0 scale; an element is e4m3 or e5m2.
//
// What a format tells the skeletons: BLOCK; Scale, how a scale is stored; prepare(), which reads what the format needs
// besides x; scale_of(largest magnitude), the scale's bits; multiplier(scale), what elements are multiplied by;
// encode_loaded(16 bytes of x, multiplier) -> their elements. And whether it DIVIDES_SCALES (see rows.cuh): if not,
// also encode(values, multiplier) -> a word of elements.
#pragma once

#include <cstdint>

#include "common/e8m0.cuh"
#include "common/fp8.cuh"
#include "common/variant.cuh"

namespace zoo {

template <class Element, Rounding ROUNDING>
struct Mxfp8 {
    static constexpr int BLOCK = 32;
    static constexpr int ELEMENTS_PER_BYTE = 1, ELEMENTS_PER_WORD = 4;
    static constexpr bool DIVIDES_SCALES = false;
    using Scale = uint8_t;

    static __device__ __forceinline__ void prepare() {}

    static __device__ __forceinline__ uint32_t scale_of(float amax) { return e8m0_of<ROUNDING, Fp8<Element>>(amax); }

    static __device__ __forceinline__ float multiplier(uint32_t scale) { return e8m0_inverse(scale); }

    // Four elements, the first in the lowest byte. A NaN multiplier (a block that held NaN or infinity) makes all NaN.
    static __device__ __forceinline__ uint32_t encode(const float* values, float multiplier) {
        const uint32_t low = Fp8<Element>::encode(values[0] * multiplier, values[1] * multiplier);
        const uint32_t high = Fp8<Element>::encode(values[2] * multiplier, values[3] * multiplier);
        return high << 16 | low;
    }

    template <class In, int WORDS>
    static __device__ __forceinline__ void encode_loaded(const typename In::Cell& loaded, float multiplier,
                                                         uint32_t (&words)[WORDS]) {
        static_assert(WORDS * 4 == In::VALUES);
        float values[In::VALUES];
        In::to_float(loaded, values);
#pragma unroll
        for (int w = 0; w < WORDS; w++) words[w] = encode(values + 4 * w, multiplier);
    }
};

}  // namespace zoo
