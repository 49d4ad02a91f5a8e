// h of a gate and its up, f32: zoo/reference/swiglu.py. The three activations are one computation, and what differs between them is
// data: silu(gate) * up has no limit; DeepSeek-V4's limits both; gpt-oss's limits both, takes gate * sigmoid(1.702 gate) and up + 1.
#pragma once

#include "quantize/swiglu.cuh"

namespace zoo {

enum class Gate : int { silu, gpt_oss, deepseek_v4 };

struct Activation {
    float limit, slope;
    bool adds_one;

    __device__ __forceinline__ Activation(Gate gate, float limit)
        : limit(gate == Gate::silu ? __uint_as_float(0x7F800000) : limit), slope(gate == Gate::gpt_oss ? 1.702f : 1.0f),
          adds_one(gate == Gate::gpt_oss) {}

    __device__ __forceinline__ float operator()(float gate, float up) const {
        limit_both(gate, up);
        return of_limited(gate, up);
    }

    // Its two steps, of which silu without limits needs the second alone.
    __device__ __forceinline__ void limit_both(float& gate, float& up) const {
        gate = at_most(gate, limit);
        up = -at_most(-at_most(up, limit), limit);
        up = adds_one ? __fadd_rn(up, 1.0f) : up;
    }
    __device__ __forceinline__ float of_limited(float gate, float up) const {
        return __fmul_rn(times_sigmoid(gate, __fmul_rn(gate, slope)), up);
    }

   private:
    // NaN stays.
    __device__ __forceinline__ static float at_most(float value, float limit) {
        float smaller;
        asm("min.NaN.f32 %0, %1, %2;" : "=f"(smaller) : "f"(value), "f"(limit));
        return smaller;
    }
};

}  // namespace zoo
