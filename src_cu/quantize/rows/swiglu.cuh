// A source of rows (rows/matrix.cuh): silu(gate) * up in float32, of a matrix of gates and ups. Included by
// kernels/swiglu.cu and kernels/token_swiglu.cu.
//
// zoo/reference/swiglu.py defines the arithmetic to the bit and gives the reasons. A lane reads two times 16 bytes:
//
//   halves         16 bytes of gates, and 16 bytes of ups K columns further
//   interleaved    gate, up, gate, up ...: 32 bytes, which the lane deinterleaves after the load
#pragma once

#include <cstdint>

#include "common/global_memory.cuh"
#include "common/input_values.cuh"
#include "common/sigmoid.cuh"

namespace zoo {

// Rows have 2 K columns and are `stride` elements apart.
template <class X>
struct Swiglu {
    static constexpr int VALUES = Input<X>::VALUES, BYTES = 16 / VALUES;
    using In = Input<Floats<VALUES>>;
    struct Loaded {
        uint4 first, second;  // gates and ups; if interleaved, 32 consecutive bytes
    };

    const uint8_t *first, *second;
    int64_t stride;    // in bytes
    int column_bytes;  // from one gate to the next
    bool interleaved;

    __device__ __forceinline__ Swiglu(const uint8_t* x, int64_t stride, int64_t K, bool interleaved)
        : first(x), second(x + (interleaved ? 16 : K * BYTES)), stride(stride * BYTES),
          column_bytes(interleaved ? 2 * BYTES : BYTES), interleaved(interleaved) {}

    __device__ __forceinline__ void start_at(uint64_t row, uint64_t column) {
        const uint64_t bytes = row * stride + column * column_bytes;
        first += bytes;
        second += bytes;
        asm("" : "+l"(first), "+l"(second));  // opaque, or the compiler recomputes both addresses for every load
    }

    __device__ __forceinline__ Loaded load(int row, int column) const {
        const int64_t bytes = row * stride + column * column_bytes;
        return {load_16_bytes(first + bytes), load_16_bytes(second + bytes)};
    }

    template <int CELLS>
    __device__ __forceinline__ void finish(Loaded (&loaded)[CELLS], typename In::Cell (&cells)[CELLS]) const {
        if (interleaved)
#pragma unroll
            for (int i = 0; i < CELLS; i++) deinterleave(loaded[i]);
#pragma unroll
        for (int i = 0; i < CELLS; i++) {
            float gates[VALUES], ups[VALUES];
            Input<X>::to_float(loaded[i].first, gates);
            Input<X>::to_float(loaded[i].second, ups);
#pragma unroll
            for (int v = 0; v < VALUES; v++) cells[i].values[v] = __fmul_rn(silu(gates[v]), ups[v]);
        }
    }

    static __device__ __forceinline__ void deinterleave(Loaded& loaded) {
        const uint4 a = loaded.first, b = loaded.second;
        if constexpr (BYTES == 4) {
            loaded = {make_uint4(a.x, a.z, b.x, b.z), make_uint4(a.y, a.w, b.y, b.w)};
        } else {
            auto low = [](uint32_t one, uint32_t other) { return __byte_perm(one, other, 0x5410); };
            auto high = [](uint32_t one, uint32_t other) { return __byte_perm(one, other, 0x7632); };
            loaded = {make_uint4(low(a.x, a.y), low(a.z, a.w), low(b.x, b.y), low(b.z, b.w)),
                      make_uint4(high(a.x, a.y), high(a.z, a.w), high(b.x, b.y), high(b.z, b.w))};
        }
    }
};

}  // namespace zoo
