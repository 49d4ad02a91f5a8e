// MXFP8: quantize/mxfp8.cuh.
#pragma once

#include "common/formats/format.cuh"
#include "dequantize/formats.cuh"
#include "quantize/either.cuh"

namespace zoo {

template <class Element>
struct FormatOf<Element, ue8m0> : FormatOfRule<AnyMxfp8<Element>> {};

template <class Element>
struct SparingFormatOf<Element, ue8m0> : FormatOfRule<EitherMxfp8<Element>> {};

template <class Element>
struct StoredAs<Element, ue8m0> {
    using Type = StoredMxfp8<Element>;
};

}  // namespace zoo
