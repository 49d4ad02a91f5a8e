// 8-bit floats: their constants, and float32 -> fp8 (round to nearest even, saturating, NaN -> 0x7F).
#pragma once

#include <cstdint>
#include <cuda_fp16.h>

#include "common/variant.cuh"

namespace zoo {

template <class Dtype>
struct Fp8;

template <>
struct Fp8<e4m3> {
    static constexpr float MAX = 448.0f;
    static constexpr int MAX_EXPONENT = 8;  // floor(log2(MAX))

    // Two elements; `first` lands in the low byte.
    static __device__ __forceinline__ uint16_t encode(float first, float second) {
        uint16_t pair;
        asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(pair) : "f"(second), "f"(first));
        return pair;
    }

    // Of the element in the low byte; exact.
    static __device__ __forceinline__ float decode(uint32_t element) {
        uint32_t pair;
        asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(pair) : "h"(static_cast<uint16_t>(element)));
        return __half2float(__ushort_as_half(static_cast<unsigned short>(pair)));
    }
};

template <>
struct Fp8<e5m2> {
    static constexpr float MAX = 57344.0f;
    static constexpr int MAX_EXPONENT = 15;

    static __device__ __forceinline__ uint16_t encode(float first, float second) {
        uint16_t pair;
        asm("cvt.rn.satfinite.e5m2x2.f32 %0, %1, %2;" : "=h"(pair) : "f"(second), "f"(first));
        return pair;
    }
};

}  // namespace zoo
