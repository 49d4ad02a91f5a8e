// g * sigmoid(z) in float32 with equal bits on every GPU. zoo/reference/swiglu.py states the rule and its reasons.
#pragma once

#include "common/division.cuh"

namespace zoo {

// g / (1 + exp(-z)). z is g times a positive number.
__device__ __forceinline__ float times_sigmoid(float g, float z) {
    constexpr float MINUS_LOG2_E = -0x1.715476p+0f;
    constexpr float C1 = 0x1.62e42ap-1f, C2 = 0x1.ebf9bcp-3f, C3 = 0x1.c6b752p-5f, C4 = 0x1.3cea88p-7f, C5 = 0x1.5bba14p-10f;
    constexpr float TO_WHOLE = 0x1.8p23f;  // a sum with this number has a last bit of value 1

    const float t = fmaxf(__fmul_rn(fabsf(z), MINUS_LOG2_E), -127.0f);
    const float shifted = __fadd_rn(t, TO_WHOLE);
    const float f = __fsub_rn(t, __fsub_rn(shifted, TO_WHOLE));
    float p = __fmaf_rn(C5, f, C4);
    p = __fmaf_rn(p, f, C3);
    p = __fmaf_rn(p, f, C2);
    p = __fmaf_rn(p, f, C1);
    p = __fmaf_rn(p, f, 1.0f);
    const float e = __uint_as_float(__float_as_uint(p) + (__float_as_uint(shifted) << 23));  // exp(-|z|)
    const float r = reciprocal_of_1_to_2(__fadd_rn(1.0f, e));
    float larger;
    asm("max.NaN.f32 %0, %1, %2;" : "=f"(larger) : "f"(g), "f"(__fmul_rn(g, e)));
    return __fmul_rn(larger, r);
}

__device__ __forceinline__ float silu(float g) { return times_sigmoid(g, g); }

}  // namespace zoo
