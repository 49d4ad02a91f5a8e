// What a format's header says of the dtypes of its elements and scales.
//
//   FormatOf<Element, Scale>          how quantisers make it: the type, the launch argument that it is made from, and how
//   SparingFormatOf<Element, Scale>   the same with a rule for scales that needs fewer registers, where there is one
//   StoredAs<Element, Scale>::Type    what dequantisers read: dequantize/formats.cuh
#pragma once

#include <cstdint>

#include "common/variant.cuh"

namespace zoo {

template <class Element, class Scale>
struct FormatOf;

template <class Element, class Scale>
struct SparingFormatOf : FormatOf<Element, Scale> {};

template <class Element, class Scale>
struct StoredAs;

// Every table gives 8 bytes, so that one source serves all formats: which rule scales follow, or where the scale of the tensor lies.
template <class Format>
struct FormatOfRule {
    using Type = Format;
    using Argument = int64_t;  // 1: the second rule of either.cuh

    static __device__ __forceinline__ Format make(Argument second, int64_t) { return Format(static_cast<int32_t>(second) != 0); }
};

// `entry`: of the tensor scales.
template <class Format>
struct FormatOfTensorScale {
    using Type = Format;
    using Argument = const float*;

    static __device__ __forceinline__ Format make(Argument tensor_scale, int64_t entry) { return Format(tensor_scale + entry); }
};

}  // namespace zoo
