// Scale bytes of packed weights for GEMMs with bf16, from and to the bytes for GEMMs with FP8. zoo/reference/fragment_scales.py has the
// rule. Three kernels use it: fragments.cu, fragments_relative.cu, unfragmented.cu.
#pragma once

#include <cstdint>

#include "common/variant.cuh"

namespace zoo {

constexpr uint32_t FP8_NAN = 127, BF16_NAN = 255;

// Scale: the dtype of the scales in a checkpoint.
template <class Scale>
struct ScaleBytes;

template <>
struct ScaleBytes<e4m3> {
    static __device__ __forceinline__ uint32_t to_bf16(uint32_t byte) {
        const uint32_t subnormal = __byte_perm(0x74706800, 0x7E7C7A78, byte) & 0xFF;
        return byte == FP8_NAN ? BF16_NAN : byte < 8 ? subnormal : byte + 120;
    }
    static __device__ __forceinline__ uint32_t to_fp8(uint32_t byte) {
        const uint32_t subnormal = (8 + byte % 8) >> (16 - byte / 8);  // for a byte below 128
        return byte == BF16_NAN ? FP8_NAN : byte < 128 ? subnormal : byte - 120;
    }

    // Two bytes at once, if both are positive normal numbers: 8 to 126 for FP8, 128 to 254 for bf16. Nearly all bytes are.
    static constexpr uint32_t OFFSET = 0x7878;
    static __device__ __forceinline__ bool fp8_bytes_are_normal(uint32_t bytes) {
        return ((bytes | bytes + 0x0101 | ~(bytes + OFFSET)) & 0x8080) == 0;
    }
    static __device__ __forceinline__ bool bf16_bytes_are_normal(uint32_t bytes) {
        return ((~bytes | (bytes & 0x7F7F) + 0x0101) & 0x8080) == 0;
    }
};

template <>
struct ScaleBytes<ue8m0> {
    static __device__ __forceinline__ uint32_t to_bf16(uint32_t byte) { return byte == FP8_NAN ? BF16_NAN : 2 * byte; }
    static __device__ __forceinline__ uint32_t to_fp8(uint32_t byte) { return byte == BF16_NAN ? FP8_NAN : byte / 2; }
};

// The mask for eight codes under a scale byte for bf16. Byte 0 clears the magnitudes and keeps the signs.
__device__ __forceinline__ uint32_t code_mask(uint32_t byte) { return byte == 0 ? 0x88888888 : 0xFFFFFFFF; }

}  // namespace zoo
