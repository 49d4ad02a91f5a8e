// e4m3 with f32 scales: quantize/fp8b128.cuh.
#pragma once

#include "common/formats/format.cuh"
#include "dequantize/formats.cuh"
#include "quantize/either.cuh"

namespace zoo {

template <>
struct FormatOf<e4m3, f32> : FormatOfRule<AnyFp8b128> {};

template <>
struct StoredAs<e4m3, f32> {
    using Type = StoredFp8b128;
};

}  // namespace zoo
