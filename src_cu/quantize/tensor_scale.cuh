// The scale of a whole tensor in NVFP4.
#pragma once

#include "common/e2m1.cuh"
#include "common/fp8.cuh"
#include "common/variant.cuh"

namespace zoo {

// So that the largest magnitude comes to the largest element with the largest scale; 1 where all is zero.
__device__ __forceinline__ float nvfp4_tensor_scale(float amax) {
    return amax == 0.0f ? 1.0f : __fdiv_rn(amax, Fp8<e4m3>::MAX * E2m1::MAX);
}

}  // namespace zoo
