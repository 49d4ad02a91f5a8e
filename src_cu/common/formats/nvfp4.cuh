// NVFP4: 16 values share an e4m3 scale; an element is e2m1, two in a byte. Scales are relative to a float32 scale of the whole tensor.
#pragma once

#include <cstdint>

#include "common/division.cuh"
#include "common/e2m1.cuh"
#include "common/formats/format.cuh"
#include "common/fp8.cuh"
#include "common/input_values.cuh"
#include "common/variant.cuh"

namespace zoo {

// For tensor scales near the ends of the exponent range. These functions hardly ever run, so they are not inlined.
inline __device__ __noinline__ float any_quotient(float a, float b) { return __fdiv_rn(a, b); }

template <class In>
inline __device__ __noinline__ uint32_t any_e2m1(typename In::Cell loaded, float multiplier) {
    float values[In::VALUES];
    In::to_float(loaded, values);
    return e2m1_encode<In::VALUES>(values, multiplier);
}

// SMALLEST: the exponent of the smallest scale.
template <int SMALLEST>
struct Nvfp4From {
    static constexpr int BLOCK = 16;
    static constexpr int ELEMENTS_PER_BYTE = 2;
    static constexpr bool DIVIDES_SCALES = true;
    using Scale = uint8_t;

    // Between these bounds a division without special cases is exact, and an eighth of every multiplier is a normal number.
    static constexpr float SMALLEST_COMMON = 0x1p-90f, LARGEST_COMMON = 0x1p90f;

    const float* tensor_scale_address;
    float tensor_scale, inverse;

    __device__ __forceinline__ explicit Nvfp4From(const float* address) : tensor_scale_address(address) {}

    __device__ __forceinline__ void prepare() {
        tensor_scale = *tensor_scale_address;
        inverse = __frcp_rn(tensor_scale);
    }

    // Uniform over the launch, and nearly always true.
    __device__ __forceinline__ bool is_common() const {
        return tensor_scale >= SMALLEST_COMMON && tensor_scale <= LARGEST_COMMON;
    }

    // The e4m3 byte, at least 2^SMALLEST. A NaN amax gives NaN.
    __device__ __forceinline__ uint32_t scale_of(float amax) const {
        float relative;
        if (is_common()) {
            float limited;  // far above 448 * 6 * tensor_scale: divide() would make NaN of infinity. NaN stays NaN.
            asm("min.NaN.f32 %0, %1, %2;" : "=f"(limited) : "f"(amax), "f"(tensor_scale * 0x1p20f));
            relative = divide(divide<1>(limited, E2m1::MAX, 1.0f / E2m1::MAX), tensor_scale, inverse);
        } else {
            relative = any_quotient(any_quotient(amax, E2m1::MAX), tensor_scale);
        }
        float raised;
        asm("max.NaN.f32 %0, %1, %2;" : "=f"(raised) : "f"(relative), "f"(1.0f / (1 << -SMALLEST)));
        return Fp8<e4m3>::encode(raised, 0.0f);
    }

    __device__ __forceinline__ float multiplier(uint32_t scale) const {
        const float divisor = Fp8<e4m3>::decode(scale);
        return is_common() ? divide<1>(inverse, divisor, approximate_reciprocal(divisor)) : any_quotient(inverse, divisor);
    }

    template <class In, int WORDS>
    __device__ __forceinline__ void encode_loaded(const typename In::Cell& loaded, float multiplier,
                                                  uint32_t (&cell)[WORDS]) const {
#if __CUDA_ARCH__ >= 1000
        float values[In::VALUES];
        In::to_float(loaded, values);
        cell[0] = e2m1_encode<In::VALUES>(values, multiplier);
#else
        if (is_common()) {
            float values[In::VALUES];
            In::to_float(loaded, values);
            const uint32_t word = e2m1_magnitudes<In::VALUES>(values, multiplier * 0.125f) | In::nibble_signs(loaded);
            cell[0] = multiplier == multiplier ? word : 0;
        } else {  // 0 * infinity is NaN, and an eighth of the multiplier may not be a float
            cell[0] = any_e2m1<In>(loaded, multiplier);
        }
#endif
    }

    // Input: a word for each row. Result: the elements of each column, a word for eight rows.
    template <class In, int COLUMNS, int WORDS>
    __device__ __forceinline__ void encode_columns(const uint32_t* rows, const float (&multiplier)[COLUMNS],
                                                   uint32_t (&words)[COLUMNS][WORDS]) const {
#if __CUDA_ARCH__ < 1000
        if (is_common()) {
#pragma unroll
            for (int w = 0; w < WORDS; w++) {
                uint32_t signs[COLUMNS];
                column_signs<In>(rows + 8 * w, signs);
#pragma unroll
                for (int c = 0; c < COLUMNS; c++) {
                    float values[8];
                    column_values<In>(rows + 8 * w, c, values);
                    const uint32_t word = e2m1_magnitudes<8>(values, multiplier[c] * 0.125f) | signs[c] & 0x88888888;
                    words[c][w] = multiplier[c] == multiplier[c] ? word : 0;
                }
            }
            return;
        }
#endif
#pragma unroll
        for (int w = 0; w < WORDS; w++)
#pragma unroll
            for (int c = 0; c < COLUMNS; c++) {
                float values[8];
                column_values<In>(rows + 8 * w, c, values);
#if __CUDA_ARCH__ >= 1000
                words[c][w] = e2m1_encode<8>(values, multiplier[c]);
#else
                auto bits = [&](int i) { return __float_as_uint(values[i]); };
                words[c][w] = any_e2m1<Input<f32>>(make_uint4(bits(0), bits(1), bits(2), bits(3)), multiplier[c]) |
                              any_e2m1<Input<f32>>(make_uint4(bits(4), bits(5), bits(6), bits(7)), multiplier[c]) << 16;
#endif
            }
    }
};

using Nvfp4 = Nvfp4From<-6>;           // the smallest normal e4m3
using Nvfp4Subnormal = Nvfp4From<-9>;  // the smallest e4m3

// The product of an element and its block scale is exact. The product with the tensor scale is rounded.
struct Nvfp4Decoder {
    static constexpr int BLOCK = 16, ELEMENTS_PER_BYTE = 2;
    using Scale = uint8_t;

    const float* tensor_scale_address;
    float tensor_scale;

    __device__ __forceinline__ explicit Nvfp4Decoder(const float* address) : tensor_scale_address(address) {}
    __device__ __forceinline__ void prepare() { tensor_scale = *tensor_scale_address; }
    template <int COUNT>
    __device__ __forceinline__ void decode(uint2 bytes, float (&values)[COUNT]) const {
        decode_e2m1(bytes.x, values);
    }
    template <int COUNT>
    __device__ __forceinline__ void scale(float (&values)[COUNT], Scale scale) const {
        float factor[1];
        decode_fp8<e4m3>(make_uint2(scale, 0), factor);
        multiply_each(values, factor[0]);
        multiply_each(values, tensor_scale);
    }
};

template <>
struct FormatOf<e2m1x2, e4m3> : FormatOfTensorScale<Nvfp4> {};

template <>
struct OtherFormatOf<e2m1x2, e4m3> : FormatOfTensorScale<Nvfp4Subnormal> {};

template <>
struct DecoderOf<e2m1x2, e4m3> {
    using Type = Nvfp4Decoder;
};

}  // namespace zoo
