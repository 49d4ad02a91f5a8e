// bf16 or f16, as the launch says: one cubin for both. f32 -> two of them in a word, the first in the low half, to nearest even.
#pragma once

#include <cstdint>

namespace zoo {

struct Either16;  // in the place of a dtype

// Both conversions are issued, one of them for nothing: no branch, no third register. The first has no predicate: a result that may
// not have been written lives too long for ptxas, and registers spill.
__device__ __forceinline__ uint32_t encode_pair_of_either(float first, float second, bool is_f16) {
    uint32_t pair;
    asm("{\n\t"
        ".reg .pred is_f16;\n\t"
        "setp.ne.b32 is_f16, %3, 0;\n\t"
        "cvt.rn.bf16x2.f32 %0, %1, %2;\n\t"
        "@is_f16 cvt.rn.f16x2.f32 %0, %1, %2;\n\t"
        "}"
        : "=r"(pair)
        : "f"(second), "f"(first), "r"(static_cast<uint32_t>(is_f16)));
    return pair;
}

}  // namespace zoo
