// Two bf16 in a register, multiplied. Subnormal ones count: nothing is flushed.
#pragma once

#include <cstdint>

namespace zoo {

__device__ __forceinline__ uint32_t multiply_pairs(uint32_t pair, uint32_t factors) {
    uint32_t product;
    asm("mul.rn.bf16x2 %0, %1, %2;" : "=r"(product) : "r"(pair), "r"(factors));
    return product;
}

// Both by one half of `factors`.
template <int HALF>
__device__ __forceinline__ uint32_t multiply_by_half(uint32_t pair, uint32_t factors) {
    uint32_t product;
    asm("{\n\t"
        ".reg .b16 halves<2>;\n\t"
        ".reg .b32 both;\n\t"
        "mov.b32 {halves0, halves1}, %2;\n\t"
        "mov.b32 both, {halves%3, halves%3};\n\t"
        "mul.rn.bf16x2 %0, %1, both;\n\t"
        "}"
        : "=r"(product)
        : "r"(pair), "r"(factors), "n"(HALF));
    return product;
}

}  // namespace zoo
