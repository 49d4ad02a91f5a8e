// A format whose rule for scales is a launch argument, so that one cubin serves both rules.
#pragma once

#include <cstdint>

#include "common/e8m0.cuh"

namespace zoo {

// The rounding of ue8m0 scales as data in two registers, of type Rule. The elements of MX formats do not depend on the rounding.
template <class Format, class Rule>
struct RuleInRegisters : Format {
    Rule rule;

    __device__ __forceinline__ explicit RuleInRegisters(bool second) : rule(second) {}

    __device__ __forceinline__ uint32_t scale_of(float amax) const { return rule.scale_of(amax); }
};

// Both scales are computed and one is selected: more instructions, fewer registers. Kernels for groups of rows need the registers.
template <class First, class Second>
struct RuleBySelection : First {
    bool second;

    __device__ __forceinline__ explicit RuleBySelection(bool second) : second(second) {}

    __device__ __forceinline__ uint32_t scale_of(float amax) const {
        return second ? Second().scale_of(amax) : First().scale_of(amax);
    }
};

}  // namespace zoo
