// The format NVFP4: 16 values share an e4m3 scale, which is relative to a float32 scale of the whole tensor; an element
// is e2m1, two a byte.
#pragma once

#include <cstdint>
#include <cuda_fp16.h>

#include "common/e2m1.cuh"
#include "common/fp8.cuh"
#include "common/variant.cuh"

namespace zoo {

struct Nvfp4 {
    static constexpr int BLOCK = 16;
    static constexpr int ELEMENTS_PER_BYTE = 2;
    static constexpr bool DIVIDES_SCALES = true;
    using Scale = uint8_t;

    const float* tensor_scale_address;
    float tensor_scale, inverse;

    __device__ __forceinline__ explicit Nvfp4(const float* address) : tensor_scale_address(address) {}

    __device__ __forceinline__ void prepare() {
        tensor_scale = *tensor_scale_address;
        inverse = __frcp_rn(tensor_scale);
    }

    // The e4m3 byte; a NaN amax gives NaN. Not below 2^-6, the smallest normal e4m3.
    __device__ __forceinline__ uint32_t scale_of(float amax) const {
        const float relative = __fdiv_rn(__fdiv_rn(amax, E2m1::MAX), tensor_scale);
        float raised;
        asm("max.NaN.f32 %0, %1, %2;" : "=f"(raised) : "f"(relative), "f"(0x1p-6f));
        return Fp8<e4m3>::encode(raised, 0.0f);
    }

    __device__ __forceinline__ float multiplier(uint32_t scale) const {
        return __fdiv_rn(inverse, Fp8<e4m3>::decode(scale));
    }

    template <class In, int WORDS>
    __device__ __forceinline__ void encode_loaded(uint4 loaded, float multiplier, uint32_t (&cell)[WORDS]) const {
        float values[In::VALUES];
        In::to_float(loaded, values);
        cell[0] = e2m1_encode<In::VALUES>(values, multiplier);
    }
};

}  // namespace zoo
