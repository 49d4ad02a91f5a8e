// A format whose rule for scales the launch chooses, so that one cubin serves both.
#pragma once

#include <cstdint>

#include "common/variant.cuh"
#include "quantize/fp8b128.cuh"
#include "quantize/mxfp4.cuh"
#include "quantize/mxfp8.cuh"

namespace zoo {

// The elements of MX formats do not depend on the rounding. Both are one computation here, and what differs is data.
template <class Format, class Element>
struct AnyRounding : Format {
    E8m0Rule<Element> rule;

    __device__ __forceinline__ explicit AnyRounding(bool rceil) : rule(rceil) {}

    __device__ __forceinline__ uint32_t scale_of(float amax) const { return rule.scale_of(amax); }
};

template <class Element>
using AnyMxfp8 = AnyRounding<Mxfp8<Element, Rounding::floor>, Fp8<Element>>;
using AnyMxfp4 = AnyRounding<Mxfp4<Rounding::floor>, E2m1>;

// Here both are computed: more instructions, but nothing is held. Groups of rows have no registers for the rule above.
template <class First, class Second>
struct Either : First {
    bool second;

    __device__ __forceinline__ explicit Either(bool second) : second(second) {}

    __device__ __forceinline__ uint32_t scale_of(float amax) const {
        return second ? Second().scale_of(amax) : First::scale_of(amax);
    }
};

template <class Element>
using EitherMxfp8 = Either<Mxfp8<Element, Rounding::floor>, Mxfp8<Element, Rounding::rceil>>;
using EitherMxfp4 = Either<Mxfp4<Rounding::floor>, Mxfp4<Rounding::rceil>>;

// The elements of `exact`: the inverse of a power of two is exact, so that it has the multipliers of `pow2`.
struct AnyFp8b128 : Fp8b128<Scaling::exact> {
    bool pow2;

    __device__ __forceinline__ explicit AnyFp8b128(bool pow2) : pow2(pow2) {}

    __device__ __forceinline__ uint32_t scale_of(float amax) const {
        return pow2 ? Fp8b128<Scaling::pow2>::scale_of(amax) : Fp8b128<Scaling::exact>::scale_of(amax);
    }
};

}  // namespace zoo
