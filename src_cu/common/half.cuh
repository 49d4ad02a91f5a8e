// float32 -> 16-bit floats, two a word, the first in the low half; round to nearest even.
#pragma once

#include <cstdint>

#include "common/variant.cuh"

namespace zoo {

template <class Dtype>
__device__ __forceinline__ uint32_t encode_pair(float first, float second);

template <>
__device__ __forceinline__ uint32_t encode_pair<bf16>(float first, float second) {
    uint32_t pair;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(second), "f"(first));
    return pair;
}

template <>
__device__ __forceinline__ uint32_t encode_pair<f16>(float first, float second) {
    uint32_t pair;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(second), "f"(first));
    return pair;
}

}  // namespace zoo
