// float32 to and from bf16 or f16: two in a word, the first in the low half; round to nearest even.
#pragma once

#include <cstdint>

#include "common/variant.cuh"

namespace zoo {

template <class Dtype>
__device__ __forceinline__ uint32_t encode_two(float first, float second);

template <>
__device__ __forceinline__ uint32_t encode_two<bf16>(float first, float second) {
    uint32_t pair;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(second), "f"(first));
    return pair;
}

template <>
__device__ __forceinline__ uint32_t encode_two<f16>(float first, float second) {
    uint32_t pair;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(second), "f"(first));
    return pair;
}

template <class Dtype>
__device__ __forceinline__ float2 decode_two(uint32_t pair);

template <>
__device__ __forceinline__ float2 decode_two<bf16>(uint32_t pair) {
    return make_float2(__uint_as_float(pair << 16), __uint_as_float(pair & 0xFFFF0000));
}

template <>
__device__ __forceinline__ float2 decode_two<f16>(uint32_t pair) {
    float2 values;
    asm("{\n\t"
        ".reg .b16 low, high;\n\t"
        "mov.b32 {low, high}, %2;\n\t"
        "cvt.f32.f16 %0, low;\n\t"
        "cvt.f32.f16 %1, high;\n\t"
        "}"
        : "=f"(values.x), "=f"(values.y)
        : "r"(pair));
    return values;
}

// Loads two neighbouring elements. Not `.nc`, because an earlier kernel may have written them while this kernel was resident.
template <class Dtype>
__device__ __forceinline__ float2 load_two(const void* address) {
    uint32_t pair;
    asm volatile("ld.global.u32 %0, [%1];" : "=r"(pair) : "l"(address));
    return decode_two<Dtype>(pair);
}

template <>
__device__ __forceinline__ float2 load_two<f32>(const void* address) {
    float2 two;
    asm volatile("ld.global.v2.f32 {%0, %1}, [%2];" : "=f"(two.x), "=f"(two.y) : "l"(address));
    return two;
}

}  // namespace zoo
