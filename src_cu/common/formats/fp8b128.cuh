// fp8b128: 128 values share a float32 scale; an element is e4m3. The last block of a row may be shorter.
#pragma once

#include <cstdint>

#include "common/e8m0.cuh"
#include "common/formats/format.cuh"
#include "common/fp8.cuh"
#include "common/variant.cuh"

namespace zoo {

template <Scaling SCALING>
struct Fp8b128 {
    static constexpr int BLOCK = 128;
    static constexpr int ELEMENTS_PER_BYTE = 1;
    static constexpr bool DIVIDES_SCALES = true;
    using Scale = uint32_t;  // the bits of the float32

    static constexpr uint32_t SMALLEST = 0x00800000;  // 2^-126 and its inverse are both normal numbers
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
        if constexpr (SCALING == Scaling::pow2)  // 2^e to 2^-e: the exponent fields add up to 2 * 127
            return __uint_as_float(scale == NOT_A_NUMBER ? NOT_A_NUMBER : 0x7F000000 - scale);
        else
            return __frcp_rn(__uint_as_float(scale));
    }

    template <class In, int WORDS>
    __device__ __forceinline__ void encode_loaded(const typename In::Cell& loaded, float multiplier,
                                                  uint32_t (&words)[WORDS]) const {
        static_assert(WORDS * 4 == In::VALUES);
        float values[In::VALUES];
        In::to_float(loaded, values);
#pragma unroll
        for (int w = 0; w < WORDS; w++) words[w] = encode_four_fp8<e4m3>(values + 4 * w, multiplier);
    }
};

// The launch chooses the scaling. `exact` gives the multipliers of `pow2`, too: the inverse of a power of two is exact.
struct ChosenFp8b128 : Fp8b128<Scaling::exact> {
    bool pow2;

    __device__ __forceinline__ explicit ChosenFp8b128(bool pow2) : pow2(pow2) {}

    __device__ __forceinline__ uint32_t scale_of(float amax) const {
        return pow2 ? Fp8b128<Scaling::pow2>::scale_of(amax) : Fp8b128<Scaling::exact>::scale_of(amax);
    }
};

struct Fp8b128Decoder {
    static constexpr int BLOCK = 128, ELEMENTS_PER_BYTE = 1;
    using Scale = float;

    __device__ __forceinline__ void prepare() {}
    template <int COUNT>
    __device__ __forceinline__ void decode(uint2 bytes, float (&values)[COUNT]) const {
        decode_fp8<e4m3>(bytes, values);
    }
    template <int COUNT>
    __device__ __forceinline__ void scale(float (&values)[COUNT], Scale scale) const {
        multiply_each(values, scale);
    }
};

template <>
struct FormatOf<e4m3, f32> : FormatOfRule<ChosenFp8b128> {};

template <>
struct DecoderOf<e4m3, f32> {
    using Type = Fp8b128Decoder;
};

}  // namespace zoo
