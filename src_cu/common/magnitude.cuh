// Of two numbers that a scale is looked for.
#pragma once

namespace zoo {

// |a| or |b|, whichever is larger; NaN is larger than all.
__device__ __forceinline__ float larger_magnitude(float a, float b) {
    float larger;
    asm("max.NaN.f32 %0, %1, %2;" : "=f"(larger) : "f"(fabsf(a)), "f"(fabsf(b)));
    return larger;
}

}  // namespace zoo
