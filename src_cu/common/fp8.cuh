// 8-bit floats: their largest values, float32 to fp8 (round to nearest even, saturating, NaN becomes 0x7F), and fp8 to float32.
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
    static constexpr int MANTISSA_BITS = 3;

    // Two elements; `first` goes to the low byte.
    static __device__ __forceinline__ uint16_t encode(float first, float second) {
        uint16_t pair;
        asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(pair) : "f"(second), "f"(first));
        return pair;
    }

    // Decodes the element in the low byte, exactly.
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
    static constexpr int MANTISSA_BITS = 2;

    static __device__ __forceinline__ uint16_t encode(float first, float second) {
        uint16_t pair;
        asm("cvt.rn.satfinite.e5m2x2.f32 %0, %1, %2;" : "=h"(pair) : "f"(second), "f"(first));
        return pair;
    }
};

// Encodes values[0..3] * multiplier, the first in the lowest byte. A NaN multiplier makes every element NaN.
template <class Element>
__device__ __forceinline__ uint32_t encode_four_fp8(const float* values, float multiplier) {
    const uint32_t low = Fp8<Element>::encode(values[0] * multiplier, values[1] * multiplier);
    const uint32_t high = Fp8<Element>::encode(values[2] * multiplier, values[3] * multiplier);
    return high << 16 | low;
}

// Two fp8, the first in the low byte, as two f16, which hold every fp8 exactly.
template <class Element>
__device__ __forceinline__ __half2 decode_two_fp8(uint16_t pair);

template <>
__device__ __forceinline__ __half2 decode_two_fp8<e4m3>(uint16_t pair) {
    uint32_t d;
    asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(d) : "h"(pair));
    return *reinterpret_cast<__half2*>(&d);
}

template <>
__device__ __forceinline__ __half2 decode_two_fp8<e5m2>(uint16_t pair) {
    uint32_t d;
    asm("cvt.rn.f16x2.e5m2x2 %0, %1;" : "=r"(d) : "h"(pair));
    return *reinterpret_cast<__half2*>(&d);
}

// Decodes the first COUNT of eight elements, exactly.
template <class Element, int COUNT>
__device__ __forceinline__ void decode_fp8(uint2 bytes, float (&values)[COUNT]) {
    const uint32_t words[2] = {bytes.x, bytes.y};
#pragma unroll
    for (int i = 0; i < COUNT; i += 2) {
        const float2 pair = __half22float2(decode_two_fp8<Element>(static_cast<uint16_t>(words[i / 4] >> i % 4 * 8)));
        values[i] = pair.x;
        if (i + 1 < COUNT) values[i + 1] = pair.y;
    }
}

}  // namespace zoo
