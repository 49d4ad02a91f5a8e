// What SwiGLU makes of a matrix of gates and ups: silu(gate) * up in float32, a source of whole_blocks.cuh.
//
// The rule, to the bit, and why it is this one: zoo/reference/swiglu.py. A lane reads 16 bytes twice: `halves`, gates and
// the ups K columns further; `interleaved`, gate, up, gate, up..., 32 bytes that it sorts afterwards.
#pragma once

#include <cstdint>

#include "common/division.cuh"
#include "common/global_memory.cuh"
#include "common/variant.cuh"
#include "quantize/input.cuh"

namespace zoo {

// g / (1 + exp(-z)), where z is g times a positive number.
__device__ __forceinline__ float times_sigmoid(float g, float z) {
    constexpr float MINUS_LOG2_E = -0x1.715476p+0f;
    constexpr float C1 = 0x1.62e42ap-1f, C2 = 0x1.ebf9bcp-3f, C3 = 0x1.c6b752p-5f, C4 = 0x1.3cea88p-7f, C5 = 0x1.5bba14p-10f;
    constexpr float TO_WHOLE = 0x1.8p23f;  // added, the last bit is worth 1

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

// Rows of 2 K columns, `stride` elements apart.
template <class X>
struct Swiglu {
    static constexpr int VALUES = Input<X>::VALUES, BYTES = 16 / VALUES;
    using In = Input<Floats<VALUES>>;
    struct Loaded {
        uint4 first, second;  // gates and ups, or both alternating
    };

    const uint8_t *first, *second;
    int64_t stride;    // in bytes
    int column_bytes;  // from gate to gate
    bool interleaved;

    __device__ __forceinline__ Swiglu(const uint8_t* x, int64_t stride, int64_t K, bool interleaved)
        : first(x), second(x + (interleaved ? 16 : K * BYTES)), stride(stride * BYTES),
          column_bytes(interleaved ? 2 * BYTES : BYTES), interleaved(interleaved) {}

    __device__ __forceinline__ void start_at(uint64_t row, uint64_t column) {
        const uint64_t bytes = row * stride + column * column_bytes;
        first += bytes;
        second += bytes;
        asm("" : "+l"(first), "+l"(second));  // opaque: or the compiler adds up both addresses anew for every load
    }

    __device__ __forceinline__ Loaded load(int row, int column) const {
        const int64_t bytes = row * stride + column * column_bytes;
        return {load_16_bytes(first + bytes), load_16_bytes(second + bytes)};
    }

    template <int CELLS>
    __device__ __forceinline__ void finish(Loaded (&loaded)[CELLS], typename In::Cell (&cells)[CELLS]) const {
        if (interleaved)
#pragma unroll
            for (int i = 0; i < CELLS; i++) sort(loaded[i]);
#pragma unroll
        for (int i = 0; i < CELLS; i++) {
            float gates[VALUES], ups[VALUES];
            Input<X>::to_float(loaded[i].first, gates);
            Input<X>::to_float(loaded[i].second, ups);
#pragma unroll
            for (int v = 0; v < VALUES; v++) cells[i].values[v] = __fmul_rn(silu(gates[v]), ups[v]);
        }
    }

    static __device__ __forceinline__ void sort(Loaded& pairs) {
        const uint4 a = pairs.first, b = pairs.second;
        if constexpr (BYTES == 4) {
            pairs = {make_uint4(a.x, a.z, b.x, b.z), make_uint4(a.y, a.w, b.y, b.w)};
        } else {
            auto low = [](uint32_t one, uint32_t other) { return __byte_perm(one, other, 0x5410); };
            auto high = [](uint32_t one, uint32_t other) { return __byte_perm(one, other, 0x7632); };
            pairs = {make_uint4(low(a.x, a.y), low(a.z, a.w), low(b.x, b.y), low(b.z, b.w)),
                     make_uint4(high(a.x, a.y), high(a.z, a.w), high(b.x, b.y), high(b.z, b.w))};
        }
    }
};

}  // namespace zoo
