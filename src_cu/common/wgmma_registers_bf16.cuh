// wgmma (sm_90a) of bf16 with A in registers: as wgmma_registers.cuh, with 16 columns of K and two elements in a word.
//
//     word 0   row 16 w + l / 4,      k 2 (l % 4) and the next        word 2   the row of word 0,  k 8 further
//     word 1   row 16 w + l / 4 + 8   same k as word 0                word 3   the row of word 1,  k 8 further
#pragma once

#include <cstdint>

#include "common/wgmma_registers.cuh"

namespace zoo {

// d (64 x N) += a (64 x 16) b (N x 16)^T.
template <int N>
    requires(N % 8 == 0 && N <= 256)
__device__ __forceinline__ void multiply_bf16_registers(float (&d)[N / 2], const uint32_t* a, uint64_t b);

#define ZOO_MULTIPLY(N, A0, A1, A2, A3, B, ...)                                                                             \
    template <>                                                                                                             \
    __device__ __forceinline__ void multiply_bf16_registers<N>(float (&d)[N / 2], const uint32_t* a, uint64_t b) {          \
        asm volatile(                                                                                                       \
            "{\n\t"                                                                                                         \
            ".reg .pred accumulate;\n\t"                                                                                    \
            "setp.eq.b32 accumulate, 0, 0;\n\t"                                                                             \
            "wgmma.mma_async.sync.aligned.m64n" #N "k16.f32.bf16.bf16 {" ZOO_SUMS_##N(ZOO_NUMBERS_OF, ZOO_AND) "}, "        \
            "{%" #A0 ", %" #A1 ", %" #A2 ", %" #A3 "}, %" #B ", accumulate, 1, 1, 0;\n\t"                                   \
            "}"                                                                                                             \
            : ZOO_SUMS_##N(ZOO_OPERANDS_OF, ZOO_COMMA)                                                                      \
            : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));                                                          \
    }
ZOO_FOR_EVERY_WIDTH(ZOO_MULTIPLY)
#undef ZOO_MULTIPLY

}  // namespace zoo
