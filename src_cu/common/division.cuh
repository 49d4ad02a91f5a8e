// Division of float32 without its special cases: correctly rounded where operands and result are far from the ends of the
// exponent range.
#pragma once

namespace zoo {

// a / b from inverse = 1 / b, rounded to nearest. a * inverse is less than two units of the last place off; a step towards
// the exact remainder makes that less than one, and from there a step is the correctly rounded quotient (Markstein 1990).
// One step is enough for each of the 2^23 mantissas of a where b is 6 or has at most 4 bits, even with an inverse that is
// one unit off (tried all).
template <int STEPS = 2>
__device__ __forceinline__ float divide(float a, float b, float inverse) {
    float q = __fmul_rn(a, inverse);
#pragma unroll
    for (int step = 0; step < STEPS; step++) q = __fmaf_rn(__fmaf_rn(-b, q, a), inverse, q);
    return q;
}

// Less than one unit of the last place off; not for subnormal numbers.
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
    // A step is right where it starts at the right result; where it starts a unit below, for all but 2 - 2^-23; where it
    // starts a unit above, for all but 32 numbers. Hopper's approximation is never one of those: tools/lab/reciprocal.py
    // has tried all 2^23 + 1 numbers on an H200. Elsewhere a second step mends all but 2 - 2^-23, from wherever the first
    // starts (tried all, from two units below to two above).
    r = __fmaf_rn(__fmaf_rn(-d, r, 1.0f), r, r);
    r = d == 0x1.fffffep0f ? 0x1.000002p-1f : r;
#endif
    return r;
}

}  // namespace zoo
