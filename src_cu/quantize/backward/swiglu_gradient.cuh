// The activation of a gated unit and its derivatives in f32. zoo/reference/swiglu_backward.py defines them bit by bit.
// Included by backward/gradient_rows.cuh.
#pragma once

#include "common/sigmoid.cuh"

namespace zoo {

enum class ActivationKind { silu, gpt_oss, deepseek_v4 };

struct SwigluGradient {
    float limit, slope;
    bool adds_one;

    struct Result {
        float act, d_gate, d_up;
    };

    __device__ __forceinline__ SwigluGradient(ActivationKind kind, float limit)
        : limit(kind == ActivationKind::silu ? __uint_as_float(0x7F800000) : limit),
          slope(kind == ActivationKind::gpt_oss ? 1.702f : 1.0f), adds_one(kind == ActivationKind::gpt_oss) {}

    // `d` is the gradient of act. A limited gate or up has no gradient.
    __device__ __forceinline__ Result operator()(float gate, float up, float d) const {
        const float g = at_most(gate, limit), limited = -at_most(-at_most(up, limit), limit);
        const float u = adds_one ? __fadd_rn(limited, 1.0f) : limited;
        const float z = __fmul_rn(g, slope), s = times_sigmoid(g, z);
        // sigmoid(|z|) and sigmoid(-|z|). The compiler merges the exponentials and reciprocals of the three calls.
        const float larger = times_sigmoid(1.0f, z), smaller = -times_sigmoid(-1.0f, z);
        const float d_s = __fmaf_rn(__fmul_rn(z, smaller), larger, z < 0.0f ? smaller : larger);
        return {__fmul_rn(s, u), gate > limit ? 0.0f : __fmul_rn(__fmul_rn(d, u), d_s),
                fabsf(up) > limit ? 0.0f : __fmul_rn(d, s)};
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
