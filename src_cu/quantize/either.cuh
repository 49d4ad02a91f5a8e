// A format whose rule for scales the launch chooses, so that one cubin serves both.
#pragma once

#include <cstdint>

#include "common/variant.cuh"
#include "quantize/fp8b128.cuh"
#include "quantize/mxfp4.cuh"
#include "quantize/mxfp8.cuh"

namespace zoo {

// Second's scales where `second`, else First's; the elements are First's, whose encoder must be right for both.
template <class First, class Second>
struct Either : First {
    bool second;

    __device__ __forceinline__ explicit Either(bool second) : second(second) {}

    __device__ __forceinline__ uint32_t scale_of(float amax) const {
        return second ? Second().scale_of(amax) : First::scale_of(amax);
    }
};

template <class Element>
using AnyMxfp8 = Either<Mxfp8<Element, Rounding::floor>, Mxfp8<Element, Rounding::rceil>>;

// The encoder for `floor` also clamps at 6, which `rceil` never exceeds.
using AnyMxfp4 = Either<Mxfp4<Rounding::floor>, Mxfp4<Rounding::rceil>>;

// The inverse of a power of two is exact, so `exact` has the multipliers of `pow2`.
using AnyFp8b128 = Either<Fp8b128<Scaling::exact>, Fp8b128<Scaling::pow2>>;

}  // namespace zoo
