// On Hopper: 2-byte floats -> e2m1 two at a time, for a multiplier that is a power of two.
//
// Then the scaled value has no more bits than x, so everything stays in the input's own format and is exact. The code is
// the least of three roundings, as e2m1.cuh explains: to multiples of 0.5, of 1 and of 2, each by adding a number whose
// last bit is worth as much. Values too small for the format's normal range lose bits, but they are far below 0.25 and
// become 0 all the same.
#pragma once

#include <cstdint>
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "common/variant.cuh"
#include "quantize/input.cuh"

namespace zoo {

template <class In>
struct PackedE2m1 {
    static constexpr bool EXISTS = false;
};

#if __CUDA_ARCH__ < 1000

struct PackedBf16 {
    static constexpr uint32_t HALVES = 0x4280, ONES = 0x4300, TWOS = 0x4380;  // 2^6, 2^7, 2^8

    static __device__ __forceinline__ uint32_t multiply_add(uint32_t a, uint32_t b, uint32_t c) {
        uint32_t d;
        asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(d) : "r"(a), "r"(b), "r"(c));
        return d;
    }
    static __device__ __forceinline__ uint32_t magnitude(uint32_t a) {
        uint32_t d;
        asm("abs.bf16x2 %0, %1;" : "=r"(d) : "r"(a));
        return d;
    }
    // Two factors of the multiplier: `once` for x itself, `in_sums` for the additions. Every power of two from 2^-127 to
    // 2^127 is a bf16, so one is enough.
    static __device__ __forceinline__ uint32_t once(uint32_t x, float) { return x; }
    static __device__ __forceinline__ uint32_t in_sums(float multiplier) {
        return __byte_perm(__float_as_uint(multiplier), 0, 0x3232);
    }
};

struct PackedF16 {
    static constexpr uint32_t HALVES = 0x6000, ONES = 0x6400, TWOS = 0x6800;  // 2^9, 2^10, 2^11

    static __device__ __forceinline__ uint32_t multiply(uint32_t a, uint32_t b) {
        uint32_t d;
        asm("mul.rn.f16x2 %0, %1, %2;" : "=r"(d) : "r"(a), "r"(b));
        return d;
    }
    static __device__ __forceinline__ uint32_t multiply_add(uint32_t a, uint32_t b, uint32_t c) {
        uint32_t d;
        asm("fma.rn.f16x2 %0, %1, %2, %3;" : "=r"(d) : "r"(a), "r"(b), "r"(c));
        return d;
    }
    static __device__ __forceinline__ uint32_t magnitude(uint32_t a) {
        uint32_t d;
        asm("abs.f16x2 %0, %1;" : "=r"(d) : "r"(a));
        return d;
    }
    // Multipliers of nonzero blocks lie between 2^-14 and 2^26: two factors, each an f16.
    static __device__ __forceinline__ uint32_t biased(float multiplier) {  // 30 more than the exponent; of a zero block any
        return min(__float_as_uint(multiplier) >> 23, 127u + 28u) - 97;
    }
    static __device__ __forceinline__ uint32_t once(uint32_t x, float multiplier) {
        return multiply(x, biased(multiplier) / 2 * 0x04000400);
    }
    static __device__ __forceinline__ uint32_t in_sums(float multiplier) {
        return (biased(multiplier) - biased(multiplier) / 2) * 0x04000400;
    }
};

template <class Float>
struct PackedE2m1Of {
    static constexpr bool EXISTS = true;

    template <Rounding ROUNDING>
    static __device__ __forceinline__ uint32_t encode(uint4 loaded, float multiplier) {
        constexpr uint32_t BOTH = 0x00010001;
        const uint32_t x[4] = {loaded.x, loaded.y, loaded.z, loaded.w};
        const uint32_t factor = Float::in_sums(multiplier);
        uint32_t codes[4];  // of a pair, above HALVES
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const uint32_t value = Float::magnitude(Float::once(x[i], multiplier));
            const uint32_t halves = Float::multiply_add(value, factor, Float::HALVES * BOTH);
            const uint32_t ones = Float::multiply_add(value, factor, Float::ONES * BOTH);
            const uint32_t twos = Float::multiply_add(value, factor, Float::TWOS * BOTH);
            codes[i] = __viaddmin_u16x2(ones, (0x10000 + 2 + Float::HALVES - Float::ONES) % 0x10000 * BOTH, halves);
            codes[i] = __viaddmin_u16x2(twos, (0x10000 + 4 + Float::HALVES - Float::TWOS) % 0x10000 * BOTH, codes[i]);
            // `floor` leaves values up to 8; with `rceil` 6 is the largest.
            if constexpr (ROUNDING == Rounding::floor) codes[i] = __vminu2(codes[i], (Float::HALVES + 7) * BOTH);
        }
        // Four elements in 16 bits: 0 and 2 are in the low halves of their words, 1 and 3 in the high ones.
        uint32_t quads[2];
#pragma unroll
        for (int h = 0; h < 2; h++) {
            constexpr uint32_t FIRST = 0x000F000F, SIGNS = 0x08080808;
            const uint32_t together = codes[2 * h] + codes[2 * h + 1] * 256 - Float::HALVES * BOTH * 257;
            const uint32_t signs = x[2 * h] >> 12 & FIRST | x[2 * h + 1] >> 4 & ~FIRST;
            const uint32_t nibbles = together | signs & SIGNS;
            quads[h] = nibbles + (nibbles >> 12);  // the low half counts
        }
        const uint32_t word = __byte_perm(quads[0], quads[1], 0x5410);
        return multiplier == multiplier ? word : 0;
    }
};

template <>
struct PackedE2m1<Input<bf16>> : PackedE2m1Of<PackedBf16> {};
template <>
struct PackedE2m1<Input<f16>> : PackedE2m1Of<PackedF16> {};

#endif

}  // namespace zoo
