// A float32 that is a power of two, of its bits: its ue8m0 byte.
#pragma once

#include <cstdint>

namespace zoo {

// From 2^-127 on a power of two is its exponent field; 0 is padding and stays 0; what is neither becomes NaN, 255.
__device__ __forceinline__ uint32_t e8m0_of_power_of_two(uint32_t bits) {
    constexpr uint32_t SMALLEST = 0x00400000;  // 2^-127, a subnormal
    if (bits == SMALLEST) return 0;
    return bits & 0x807FFFFF ? 255 : bits >> 23;
}

}  // namespace zoo
