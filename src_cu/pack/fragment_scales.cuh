// Scale bytes as products with bf16 take them, and back to those that products with FP8 take: zoo/reference/fragment_scales.py.
#pragma once

#include <cstdint>

#include "common/variant.cuh"

namespace zoo {

constexpr uint32_t NAN_OF_FP8 = 127, NAN_OF_BF16 = 255;

// By the dtype of the scales.
template <class Scale>
struct ScalesOfBf16;

template <>
struct ScalesOfBf16<e4m3> {
    static __device__ __forceinline__ uint32_t from(uint32_t byte) {
        const uint32_t subnormal = __byte_perm(0x74706800, 0x7E7C7A78, byte) & 0xFF;
        return byte == NAN_OF_FP8 ? NAN_OF_BF16 : byte < 8 ? subnormal : byte + 120;
    }
    static __device__ __forceinline__ uint32_t back(uint32_t byte) {
        const uint32_t subnormal = (8 + byte % 8) >> (16 - byte / 8);  // of a byte below 128
        return byte == NAN_OF_BF16 ? NAN_OF_FP8 : byte < 128 ? subnormal : byte - 120;
    }

    // Two bytes at once, if both are those of positive normal numbers, as almost all are: 8 to 126 of fp8, 128 to 254 of bf16.
    static constexpr uint32_t FURTHER = 0x7878;
    static __device__ __forceinline__ bool are_normal(uint32_t bytes) {
        return ((bytes | bytes + 0x0101 | ~(bytes + FURTHER)) & 0x8080) == 0;
    }
    static __device__ __forceinline__ bool are_normal_of_bf16(uint32_t bytes) {
        return ((~bytes | (bytes & 0x7F7F) + 0x0101) & 0x8080) == 0;
    }
};

template <>
struct ScalesOfBf16<ue8m0> {
    static __device__ __forceinline__ uint32_t from(uint32_t byte) { return byte == NAN_OF_FP8 ? NAN_OF_BF16 : 2 * byte; }
    static __device__ __forceinline__ uint32_t back(uint32_t byte) { return byte == NAN_OF_BF16 ? NAN_OF_FP8 : byte / 2; }
};

// Under byte 0 bf16 wants no magnitudes: what codes keep of themselves.
__device__ __forceinline__ uint32_t kept_of_codes(uint32_t byte) { return byte == 0 ? 0x88888888 : 0xFFFFFFFF; }

}  // namespace zoo
