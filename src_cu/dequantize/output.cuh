// float32 to the dtype of the output, round to nearest even. Every NaN becomes 0x7FFFFFFF or 0x7FFF. rows.cuh uses it.
#pragma once

#include <cstdint>

#include "common/global_memory.cuh"
#include "common/variant.cuh"

namespace zoo {

template <class Dtype>
struct Output;

// The conversion instruction returns 0x7FFF for NaN.
template <>
struct Output<bf16> {
    static constexpr int BYTES = 2;

    static __device__ __forceinline__ void store(uint8_t* address, const float (&values)[8]) {
        uint32_t words[4];
#pragma unroll
        for (int i = 0; i < 4; i++) words[i] = pair(values[2 * i], values[2 * i + 1]);
        store_16_bytes(address, words);
    }
    static __device__ __forceinline__ void store_one(uint8_t* address, float value) {
        *reinterpret_cast<uint16_t*>(address) = static_cast<uint16_t>(pair(value, 0.0f));
    }

   private:
    static __device__ __forceinline__ uint32_t pair(float low, float high) {
        uint32_t d;
        asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(d) : "f"(high), "f"(low));
        return d;
    }
};

// A multiplication returns 0x7FFFFFFF for NaN.
template <>
struct Output<f32> {
    static constexpr int BYTES = 4;

    static __device__ __forceinline__ void store(uint8_t* address, const float (&values)[4]) {
        uint32_t words[4];
#pragma unroll
        for (int i = 0; i < 4; i++) words[i] = __float_as_uint(values[i]);
        store_16_bytes(address, words);
    }
    static __device__ __forceinline__ void store_one(uint8_t* address, float value) {
        *reinterpret_cast<float*>(address) = value;
    }
};

}  // namespace zoo
