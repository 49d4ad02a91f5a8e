// The format that the dtypes of elements and scales name, and the one launch argument that it is made from.
//
// Every table gives 8 bytes for it, so that one source serves all formats: which rule scales follow, or where the scale
// of the tensor lies.
#pragma once

#include <cstdint>

#include "common/variant.cuh"
#include "quantize/either.cuh"
#include "quantize/nvfp4.cuh"

namespace zoo {

template <class Element, class Scale>
struct FormatOf;

template <class Format>
struct FormatOfRule {
    using Type = Format;
    using Argument = int64_t;  // 1: the second rule of either.cuh

    static __device__ __forceinline__ Format make(Argument second, int64_t) { return Format(static_cast<int32_t>(second) != 0); }
};

template <class Element>
struct FormatOf<Element, ue8m0> : FormatOfRule<AnyMxfp8<Element>> {};

template <>
struct FormatOf<e2m1x2, ue8m0> : FormatOfRule<AnyMxfp4> {};

template <>
struct FormatOf<e4m3, f32> : FormatOfRule<AnyFp8b128> {};

template <>
struct FormatOf<e2m1x2, e4m3> {
    using Type = Nvfp4;
    using Argument = const float*;

    // `entry`: of the tensor scales.
    static __device__ __forceinline__ Nvfp4 make(Argument tensor_scale, int64_t entry) { return Nvfp4(tensor_scale + entry); }
};

// The same with a rule for scales that needs fewer registers.
template <class Element, class Scale>
struct SparingFormatOf : FormatOf<Element, Scale> {};

template <class Element>
struct SparingFormatOf<Element, ue8m0> : FormatOfRule<EitherMxfp8<Element>> {};

template <>
struct SparingFormatOf<e2m1x2, ue8m0> : FormatOfRule<EitherMxfp4> {};

}  // namespace zoo
