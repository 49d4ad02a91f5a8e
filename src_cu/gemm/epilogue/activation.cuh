// h = activation(gate) * up in f32, as zoo/reference/swiglu.py defines it. The three activations share the code and differ in its data:
//
//     silu           gate * sigmoid(gate) * up
//     deepseek_v4    the same of limited gates and ups
//     gpt_oss        gate * sigmoid(1.702 gate) * (up + 1) of limited gates and ups
//
// Included by all SwiGLU kernels.
#pragma once

#include "common/sigmoid.cuh"

namespace zoo {

enum class ActivationKind { silu, gpt_oss, deepseek_v4 };

struct Activation {
    float limit, slope;
    bool adds_one;

    __device__ __forceinline__ Activation(ActivationKind kind, float limit)
        : limit(kind == ActivationKind::silu ? __uint_as_float(0x7F800000) : limit),
          slope(kind == ActivationKind::gpt_oss ? 1.702f : 1.0f), adds_one(kind == ActivationKind::gpt_oss) {}

    __device__ __forceinline__ float operator()(float gate, float up) const {
        limit_both(gate, up);
        return of_limited(gate, up);
    }

    // The two steps of operator(). silu needs only the second.
    __device__ __forceinline__ void limit_both(float& gate, float& up) const {
        gate = at_most(gate, limit);
        up = -at_most(-at_most(up, limit), limit);
        up = adds_one ? __fadd_rn(up, 1.0f) : up;
    }
    __device__ __forceinline__ float of_limited(float gate, float up) const {
        return __fmul_rn(times_sigmoid(gate, __fmul_rn(gate, slope)), up);
    }

   private:
    // NaN stays NaN.
    __device__ __forceinline__ static float at_most(float value, float limit) {
        float smaller;
        asm("min.NaN.f32 %0, %1, %2;" : "=f"(smaller) : "f"(value), "f"(limit));
        return smaller;
    }
};

}  // namespace zoo
