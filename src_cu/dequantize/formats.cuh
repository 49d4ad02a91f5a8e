// What stored elements and scales stand for. A format tells the skeleton in rows.cuh:
//
//   BLOCK, ELEMENTS_PER_BYTE, Scale       how many elements share a scale, and how it is stored
//   prepare()                             reads what the format needs besides
//   decode<COUNT>(bytes, values)          elements, exactly
//   scale(values, scale)                  values times what the scale stands for, each rounded once
#pragma once

#include <cstdint>
#include <cuda_fp16.h>

#include "common/variant.cuh"

namespace zoo {

// Two fp8, the first in the low byte, are exact as two f16.
template <class Element>
__device__ __forceinline__ __half2 fp8_pair(uint16_t pair);

template <>
__device__ __forceinline__ __half2 fp8_pair<e4m3>(uint16_t pair) {
    uint32_t d;
    asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(d) : "h"(pair));
    return *reinterpret_cast<__half2*>(&d);
}

template <>
__device__ __forceinline__ __half2 fp8_pair<e5m2>(uint16_t pair) {
    uint32_t d;
    asm("cvt.rn.f16x2.e5m2x2 %0, %1;" : "=r"(d) : "h"(pair));
    return *reinterpret_cast<__half2*>(&d);
}

template <class Element, int COUNT>
__device__ __forceinline__ void decode_fp8(uint2 bytes, float (&values)[COUNT]) {
    const uint32_t words[2] = {bytes.x, bytes.y};
#pragma unroll
    for (int i = 0; i < COUNT; i += 2) {
        const float2 pair = __half22float2(fp8_pair<Element>(static_cast<uint16_t>(words[i / 4] >> i % 4 * 8)));
        values[i] = pair.x;
        if (i + 1 < COUNT) values[i + 1] = pair.y;
    }
}

// Two e2m1 as f16, exactly: exponent and mantissa, three bits, go where a f16 has the low bits of its exponent and the
// high one of its mantissa, and 2^14 makes up for the bias, also of the subnormal 0.5. The first element of a byte is put
// in the high nibble of a half's high byte, and so is the second. The same on every architecture.
template <int BYTE>
__device__ __forceinline__ float2 e2m1_pair(uint32_t nibbles, uint32_t nibbles_up) {
    const uint32_t apart = __byte_perm(nibbles, nibbles_up, BYTE << 12 | (4 + BYTE) << 4);
    const uint32_t halves = (apart & 0x80008000) | (apart >> 3 & 0x0E000E00);
    constexpr uint32_t BIAS = 0x74007400;  // 2^14
    uint32_t product;
    asm("mul.rn.f16x2 %0, %1, %2;" : "=r"(product) : "r"(halves), "r"(BIAS));
    return __half22float2(*reinterpret_cast<__half2*>(&product));
}

template <int COUNT>
__device__ __forceinline__ void decode_e2m1(uint32_t nibbles, float (&values)[COUNT]) {
    const uint32_t up = nibbles << 4;
    const float2 pairs[4] = {e2m1_pair<0>(nibbles, up), e2m1_pair<1>(nibbles, up), e2m1_pair<2>(nibbles, up),
                             e2m1_pair<3>(nibbles, up)};
#pragma unroll
    for (int i = 0; i < COUNT; i++) values[i] = i % 2 ? pairs[i / 2].y : pairs[i / 2].x;
}

// 2^(byte - 127): byte 0 is the subnormal 2^-127, byte 255 NaN.
__device__ __forceinline__ float e8m0_value(uint8_t scale) {
    const uint32_t bits = scale == 0 ? 0x00400000 : uint32_t(scale) << 23;
    return __uint_as_float(scale == 255 ? 0x7FFFFFFF : bits);
}

template <int COUNT>
__device__ __forceinline__ void multiply(float (&values)[COUNT], float factor) {
#pragma unroll
    for (int i = 0; i < COUNT; i++) values[i] = __fmul_rn(values[i], factor);
}

template <class Element>
struct StoredMxfp8 {
    static constexpr int BLOCK = 32, ELEMENTS_PER_BYTE = 1;
    using Scale = uint8_t;

    __device__ __forceinline__ void prepare() {}
    template <int COUNT>
    __device__ __forceinline__ void decode(uint2 bytes, float (&values)[COUNT]) const {
        decode_fp8<Element>(bytes, values);
    }
    template <int COUNT>
    __device__ __forceinline__ void scale(float (&values)[COUNT], Scale scale) const {
        multiply(values, e8m0_value(scale));
    }
};

struct StoredMxfp4 {
    static constexpr int BLOCK = 32, ELEMENTS_PER_BYTE = 2;
    using Scale = uint8_t;

    __device__ __forceinline__ void prepare() {}
    template <int COUNT>
    __device__ __forceinline__ void decode(uint2 bytes, float (&values)[COUNT]) const {
        decode_e2m1(bytes.x, values);
    }
    template <int COUNT>
    __device__ __forceinline__ void scale(float (&values)[COUNT], Scale scale) const {
        multiply(values, e8m0_value(scale));
    }
};

// Element times block scale is exact; the product with the tensor scale is the one that is rounded.
struct StoredNvfp4 {
    static constexpr int BLOCK = 16, ELEMENTS_PER_BYTE = 2;
    using Scale = uint8_t;

    const float* tensor_scale_address;
    float tensor_scale;

    __device__ __forceinline__ explicit StoredNvfp4(const float* address) : tensor_scale_address(address) {}
    __device__ __forceinline__ void prepare() { tensor_scale = *tensor_scale_address; }
    template <int COUNT>
    __device__ __forceinline__ void decode(uint2 bytes, float (&values)[COUNT]) const {
        decode_e2m1(bytes.x, values);
    }
    template <int COUNT>
    __device__ __forceinline__ void scale(float (&values)[COUNT], Scale scale) const {
        float factor[1];
        decode_fp8<e4m3>(make_uint2(scale, 0), factor);
        multiply(values, factor[0]);
        multiply(values, tensor_scale);
    }
};

struct StoredFp8b128 {
    static constexpr int BLOCK = 128, ELEMENTS_PER_BYTE = 1;
    using Scale = float;

    __device__ __forceinline__ void prepare() {}
    template <int COUNT>
    __device__ __forceinline__ void decode(uint2 bytes, float (&values)[COUNT]) const {
        decode_fp8<e4m3>(bytes, values);
    }
    template <int COUNT>
    __device__ __forceinline__ void scale(float (&values)[COUNT], Scale scale) const {
        multiply(values, scale);
    }
};

}  // namespace zoo
