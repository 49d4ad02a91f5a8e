// The larger magnitude of two numbers, as the scale of a block needs it.
#pragma once

namespace zoo {

// max(|a|, |b|). NaN is larger than every number.
__device__ __forceinline__ float larger_magnitude(float a, float b) {
    float larger;
    asm("max.NaN.f32 %0, %1, %2;" : "=f"(larger) : "f"(fabsf(a)), "f"(fabsf(b)));
    return larger;
}

}  // namespace zoo
