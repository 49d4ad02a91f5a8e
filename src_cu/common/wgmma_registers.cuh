// wgmma (sm_90a) with A in registers: four words of a lane hold its part of A, 64 x 32 of e4m3. B and D are as in wgmma.cuh.
//
//     word 0   row 16 w + l / 4,      k 4 (l % 4) to 4 (l % 4) + 3        word 2   the row of word 0,  k 16 further
//     word 1   row 16 w + l / 4 + 8   same k as word 0                    word 3   the row of word 1,  k 16 further
//
// An instruction reads these words while it runs. They may not be written before it has ended.
#pragma once

#include <cstdint>

#include "common/wgmma.cuh"

namespace zoo {

// The compiler does not reuse these registers before this call.
template <int COUNT>
__device__ __forceinline__ void hold(const uint32_t (&words)[COUNT]) {
#pragma unroll
    for (int i = 0; i < COUNT; i++) asm volatile("" ::"r"(words[i]) : "memory");
}

// d (64 x N) += a (64 x 32) b (N x 32)^T, or = without `accumulate`.
template <int N>
    requires(N % 8 == 0 && N <= 256)
__device__ __forceinline__ void multiply_registers(float (&d)[N / 2], const uint32_t* a, uint64_t b, bool accumulate);

#define ZOO_MULTIPLY(N, A0, A1, A2, A3, B, ACCUMULATE)                                                                      \
    template <>                                                                                                             \
    __device__ __forceinline__ void multiply_registers<N>(float (&d)[N / 2], const uint32_t* a, uint64_t b, bool accumulate) {\
        asm volatile(                                                                                                       \
            "{\n\t"                                                                                                         \
            ".reg .pred accumulate;\n\t"                                                                                    \
            "setp.ne.b32 accumulate, %" #ACCUMULATE ", 0;\n\t"                                                              \
            "wgmma.mma_async.sync.aligned.m64n" #N "k32.f32.e4m3.e4m3 {" ZOO_SUMS_##N(ZOO_NUMBERS_OF, ZOO_AND) "}, "        \
            "{%" #A0 ", %" #A1 ", %" #A2 ", %" #A3 "}, %" #B ", accumulate, 1, 1;\n\t"                                      \
            "}"                                                                                                             \
            : ZOO_SUMS_##N(ZOO_OPERANDS_OF, ZOO_COMMA)                                                                      \
            : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(static_cast<uint32_t>(accumulate)));                  \
    }
ZOO_FOR_EVERY_WIDTH(ZOO_MULTIPLY)
#undef ZOO_MULTIPLY

}  // namespace zoo
