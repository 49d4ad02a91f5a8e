// NVFP4 with a tensor scale for every group of rows, or one for all.
#pragma once

#include <cstdint>

#include "common/variant.cuh"
#include "quantize/nvfp4.cuh"

namespace zoo {

// A lane holds the scale of its own row's group (row_groups.cuh).
struct Nvfp4OfGroups : Nvfp4 {
    bool one_for_all;

    __device__ __forceinline__ Nvfp4OfGroups(const float* addresses, bool one_for_all)
        : Nvfp4(addresses), one_for_all(one_for_all) {}
};

__device__ __forceinline__ void prepare_for_group(Nvfp4OfGroups& format, int group) {
    if (!format.one_for_all) format.tensor_scale_address += group;
    format.prepare();
}

__device__ __forceinline__ Nvfp4 format_of_lane(const Nvfp4OfGroups& format, int lane) {
    Nvfp4 other = format;
    other.tensor_scale = __shfl_sync(0xFFFFFFFF, format.tensor_scale, lane);
    other.inverse = __shfl_sync(0xFFFFFFFF, format.inverse, lane);
    return other;
}

}  // namespace zoo
