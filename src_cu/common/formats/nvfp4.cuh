// NVFP4: quantize/nvfp4.cuh.
#pragma once

#include "common/formats/format.cuh"
#include "dequantize/formats.cuh"
#include "quantize/nvfp4.cuh"

namespace zoo {

template <>
struct FormatOf<e2m1x2, e4m3> : FormatOfTensorScale<Nvfp4> {};

template <>
struct StoredAs<e2m1x2, e4m3> {
    using Type = StoredNvfp4;
};

}  // namespace zoo
