// NVFP4: the float32 scale of a whole tensor. Included by amax.cuh and kernels/nvfp4_rows_amax.cu.
#pragma once

#include "common/e2m1.cuh"
#include "common/fp8.cuh"
#include "common/variant.cuh"

namespace zoo {

// With this scale amax becomes the largest element under the largest block scale. A tensor of zeros has scale 1.
__device__ __forceinline__ float nvfp4_tensor_scale(float amax) {
    return amax == 0.0f ? 1.0f : __fdiv_rn(amax, Fp8<e4m3>::MAX * E2m1::MAX);
}

}  // namespace zoo
