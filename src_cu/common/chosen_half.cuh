// f32 to bf16 or f16, whichever the launch chooses, so that one cubin serves both: two in a word, round to nearest even.
#pragma once

#include <cstdint>

namespace zoo {

struct ChosenHalf;  // a tag for the dtype

// `first` goes to the low half. Both conversions are issued, so there is no branch and no third register. The first conversion has no
// predicate: ptxas keeps a register that may not be written alive too long, and then registers spill.
__device__ __forceinline__ uint32_t encode_two_chosen(float first, float second, bool is_f16) {
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
