// MXFP4: quantize/mxfp4.cuh.
#pragma once

#include "common/formats/format.cuh"
#include "dequantize/formats.cuh"
#include "quantize/either.cuh"

namespace zoo {

template <>
struct FormatOf<e2m1x2, ue8m0> : FormatOfRule<AnyMxfp4> {};

template <>
struct SparingFormatOf<e2m1x2, ue8m0> : FormatOfRule<EitherMxfp4> {};

template <>
struct StoredAs<e2m1x2, ue8m0> {
    using Type = StoredMxfp4;
};

}  // namespace zoo
