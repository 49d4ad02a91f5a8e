// Two bf16 in one register: products that keep subnormal numbers, and byte permutations.
#pragma once

#include <cstdint>

namespace zoo {

// All four bits of a selector count, as __byte_perm has only three: the fourth spreads a byte's sign.
__device__ __forceinline__ uint32_t permute_bytes(uint32_t low, uint32_t high, uint32_t selector) {
    uint32_t bytes;
    asm("prmt.b32 %0, %1, %2, %3;" : "=r"(bytes) : "r"(low), "r"(high), "r"(selector));
    return bytes;
}

__device__ __forceinline__ uint32_t multiply_pairs(uint32_t pair, uint32_t factors) {
    uint32_t product;
    asm("mul.rn.bf16x2 %0, %1, %2;" : "=r"(product) : "r"(pair), "r"(factors));
    return product;
}

// Multiplies both by one half of `factors`.
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
