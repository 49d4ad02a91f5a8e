// Division of float32 without special cases: correctly rounded if operands and result are far from the ends of the exponent range.
#pragma once

namespace zoo {

// a / b, rounded to nearest, with inverse = 1 / b. The error of a * inverse is below two units of the last place. A step with the exact
// remainder makes the error smaller than one unit, and one more step gives the correctly rounded quotient (Markstein 1990).
// One step suffices if b is 6 or b has at most 4 bits, even if the inverse is one unit off. All 2^23 mantissas of a were tried.
template <int STEPS = 2>
__device__ __forceinline__ float divide(float a, float b, float inverse) {
    float q = __fmul_rn(a, inverse);
#pragma unroll
    for (int step = 0; step < STEPS; step++) q = __fmaf_rn(__fmaf_rn(-b, q, a), inverse, q);
    return q;
}

// The error is below one unit of the last place. Not for subnormal numbers.
__device__ __forceinline__ float approximate_reciprocal(float d) {
    float r;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(d));
    return r;
}

// 1 / d, rounded to nearest, for d in [1, 2].
__device__ __forceinline__ float reciprocal_of_1_to_2(float d) {
    float r = approximate_reciprocal(d);
    r = __fmaf_rn(__fmaf_rn(-d, r, 1.0f), r, r);
#if __CUDA_ARCH__ != 900
    // One step is correct from the correct result, and from one unit below except for d = 2 - 2^-23. From one unit above it is wrong for
    // 32 numbers. On Hopper none of these cases occurs: tools/lab/reciprocal.py tried all 2^23 + 1 numbers on an H200.
    // Other GPUs take a second step. From any start within two units it is correct except for d = 2 - 2^-23 (all starts were tried).
    r = __fmaf_rn(__fmaf_rn(-d, r, 1.0f), r, r);
    r = d == 0x1.fffffep0f ? 0x1.000002p-1f : r;
#endif
    return r;
}

}  // namespace zoo
