// MXFP8: 32 values share a ue8m0 scale; an element is e4m3 or e5m2.
#pragma once

#include <cstdint>

#include "common/e8m0.cuh"
#include "common/formats/chosen_rule.cuh"
#include "common/formats/format.cuh"
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

    // NaN for a block that held NaN or infinity.
    static __device__ __forceinline__ float multiplier(uint32_t scale) { return e8m0_inverse(scale); }

    static __device__ __forceinline__ uint32_t encode(const float* values, float multiplier) {
        return encode_four_fp8<Element>(values, multiplier);
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

template <class Element>
struct Mxfp8Decoder : MxDecoder {
    static constexpr int ELEMENTS_PER_BYTE = 1;

    template <int COUNT>
    __device__ __forceinline__ void decode(uint2 bytes, float (&values)[COUNT]) const {
        decode_fp8<Element>(bytes, values);
    }
};

template <class Element>
struct FormatOf<Element, ue8m0> : FormatOfRule<RuleInRegisters<Mxfp8<Element, Rounding::floor>, E8m0Rule<Fp8<Element>>>> {};

template <class Element>
struct OtherFormatOf<Element, ue8m0>
    : FormatOfRule<RuleInRegisters<Mxfp8<Element, Rounding::floor>, E8m0EvenOrCeil<Fp8<Element>>>> {};

template <class Element>
struct FewRegisterFormatOf<Element, ue8m0>
    : FormatOfRule<RuleBySelection<Mxfp8<Element, Rounding::floor>, Mxfp8<Element, Rounding::rceil>>> {};

template <class Element>
struct DecoderOf<Element, ue8m0> {
    using Type = Mxfp8Decoder<Element>;
};

}  // namespace zoo
