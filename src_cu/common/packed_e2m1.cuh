// bf16 or f16 to e2m1 on Hopper, two values in an instruction, if the multiplier is a power of two.
//
// Then the scaled value has no more bits than x. So all steps stay in the dtype of x and are exact. The code is the least of three
// roundings, to multiples of 0.5, 1 and 2 (e2m1.cuh explains them). Each rounding adds a number whose last bit has this value. Values below
// the normal range of the dtype lose bits, but they are far below 0.25 and become 0 in any case.
#pragma once

#include <cstdint>
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "common/input_values.cuh"
#include "common/variant.cuh"

namespace zoo {

template <class In>
struct PackedE2m1 {
    static constexpr bool EXISTS = false;
};

#if __CUDA_ARCH__ < 1000

struct PackedBf16 {
    // 2^5, 2^6, 2^7, for half the value: then the low byte of HALVES is 0.
    static constexpr uint32_t HALVES = 0x4200, ONES = 0x4280, TWOS = 0x4300;

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
    // The multiplier is split into two factors: `once` for x, `in_sums` for the additions. For bf16 the second factor is enough, because
    // every power of two from 2^-128 to 2^126 is a bf16.
    static __device__ __forceinline__ uint32_t once(uint32_t x, float) { return x; }
    static __device__ __forceinline__ uint32_t once_factors(float, float) { return 0; }  // of two columns
    static __device__ __forceinline__ uint32_t once_by(uint32_t x, uint32_t) { return x; }
    static __device__ __forceinline__ uint32_t in_sums(float multiplier) {
        return __byte_perm(__float_as_uint(multiplier * 0.5f), 0, 0x3232);
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
    // Multipliers of nonzero blocks are between 2^-14 and 2^26. Two factors of them fit f16. A zero block may have any multiplier.
    static __device__ __forceinline__ uint32_t biased(float multiplier) {  // the exponent plus 30
        return min(__float_as_uint(multiplier) >> 23, 127u + 28u) - 97;
    }
    static __device__ __forceinline__ uint32_t once(uint32_t x, float multiplier) {
        return multiply(x, biased(multiplier) / 2 * 0x04000400);
    }
    static __device__ __forceinline__ uint32_t once_factors(float first, float second) {
        return biased(first) / 2 * 0x00000400 + biased(second) / 2 * 0x04000000;
    }
    static __device__ __forceinline__ uint32_t once_by(uint32_t x, uint32_t factors) { return multiply(x, factors); }
    static __device__ __forceinline__ uint32_t in_sums(float multiplier) {
        return (biased(multiplier) - biased(multiplier) / 2) * 0x04000400;
    }
};

template <class Float>
struct PackedE2m1Of {
    static constexpr bool EXISTS = true;
    static constexpr uint32_t BOTH = 0x00010001;

    // HALVES + the code, for each of two magnitudes.
    template <Rounding ROUNDING>
    static __device__ __forceinline__ uint32_t codes_of(uint32_t values, uint32_t factors) {
        const uint32_t halves = Float::multiply_add(values, factors, Float::HALVES * BOTH);
        const uint32_t ones = Float::multiply_add(values, factors, Float::ONES * BOTH);
        const uint32_t twos = Float::multiply_add(values, factors, Float::TWOS * BOTH);
        uint32_t codes = __viaddmin_u16x2(ones, (0x10000 + 2 + Float::HALVES - Float::ONES) % 0x10000 * BOTH, halves);
        codes = __viaddmin_u16x2(twos, (0x10000 + 4 + Float::HALVES - Float::TWOS) % 0x10000 * BOTH, codes);
        // With `floor` values reach 8 and get code 8. With `rceil` the largest value is 6.
        if constexpr (ROUNDING == Rounding::floor) codes = __vminu2(codes, (Float::HALVES + 7) * BOTH);
        return codes;
    }

    static __device__ __forceinline__ uint32_t encode(uint4 loaded, float multiplier) {
        static_assert(Float::HALVES % 256 == 0, "the low byte of a sum is the code");
        const uint32_t x[4] = {loaded.x, loaded.y, loaded.z, loaded.w};
        const uint32_t factor = Float::in_sums(multiplier);
        uint32_t codes[4];  // of two elements, plus HALVES
#pragma unroll
        for (int i = 0; i < 4; i++) {
            codes[i] = codes_of<Rounding::rceil>(Float::magnitude(Float::once(x[i], multiplier)), factor);
        }
        uint32_t pairs[2];  // codes of two elements in bytes 0 and 2
#pragma unroll
        for (int h = 0; h < 2; h++) {
            const uint32_t bytes = __byte_perm(codes[2 * h], codes[2 * h + 1], 0x6420);
            pairs[h] = bytes + (bytes >> 4);
        }
        uint32_t word = __byte_perm(pairs[0], pairs[1], 0x6420);
        word -= (word & 0x88888888) >> 3;  // `floor` leaves values from 7 to 8, which have code 8 so far
        const uint32_t kept = multiplier == multiplier ? 0xFFFFFFFF : 0;  // a mask, because the compiler makes no branch of it
        return (word | PackedInput::nibble_signs(loaded)) & kept;
    }

    // Input: eight rows of two columns, a word each. Result: a word of codes for each column, its first row in the lowest nibble.
    template <Rounding ROUNDING>
    static __device__ __forceinline__ void encode_columns(const uint32_t* x, const float (&multiplier)[2], uint32_t (&words)[2]) {
        const uint32_t once = Float::once_factors(multiplier[0], multiplier[1]);
        const uint32_t factors = __byte_perm(Float::in_sums(multiplier[0]), Float::in_sums(multiplier[1]), 0x5410);
        uint32_t quads[2];  // codes of four rows, a column in each half
#pragma unroll
        for (int h = 0; h < 2; h++) {
            uint32_t codes = 0u - Float::HALVES * BOTH * 0x1111;
#pragma unroll
            for (int r = 0; r < 4; r++)
                codes += codes_of<ROUNDING>(Float::magnitude(Float::once_by(x[4 * h + r], once)), factors) << 4 * r;
            quads[h] = codes | signs_of_two_columns(x + 4 * h) & 0x88888888;
        }
#pragma unroll
        for (int c = 0; c < 2; c++) {
            const uint32_t word = __byte_perm(quads[0], quads[1], c == 0 ? 0x5410 : 0x7632);
            words[c] = multiplier[c] == multiplier[c] ? word : 0;
        }
    }
};

template <>
struct PackedE2m1<Input<bf16>> : PackedE2m1Of<PackedBf16> {};
template <>
struct PackedE2m1<Input<f16>> : PackedE2m1Of<PackedF16> {};

#endif

}  // namespace zoo
