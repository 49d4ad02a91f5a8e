// The format NVFP4: 16 values share an e4m3 scale, which is relative to a float32 scale of the whole tensor; an element
// is e2m1, two a byte.
#pragma once

#include <cstdint>
#include <cuda_fp16.h>

#include "common/division.cuh"
#include "common/e2m1.cuh"
#include "common/fp8.cuh"
#include "common/variant.cuh"

namespace zoo {

// For tensor scales near the ends of the exponent range. Not inline: hardly ever called.
inline __device__ __noinline__ float any_quotient(float a, float b) { return __fdiv_rn(a, b); }

template <class In>
inline __device__ __noinline__ uint32_t any_e2m1(typename In::Cell loaded, float multiplier) {
    float values[In::VALUES];
    In::to_float(loaded, values);
    return e2m1_encode<In::VALUES>(values, multiplier);
}

struct Nvfp4 {
    static constexpr int BLOCK = 16;
    static constexpr int ELEMENTS_PER_BYTE = 2;
    static constexpr bool DIVIDES_SCALES = true;
    using Scale = uint8_t;

    // Between them every remainder of a division is a float, and an eighth of every multiplier is normal.
    static constexpr float SMALLEST_USUAL = 0x1p-90f, LARGEST_USUAL = 0x1p90f;

    const float* tensor_scale_address;
    float tensor_scale, inverse;

    __device__ __forceinline__ explicit Nvfp4(const float* address) : tensor_scale_address(address) {}

    __device__ __forceinline__ void prepare() {
        tensor_scale = *tensor_scale_address;
        inverse = __frcp_rn(tensor_scale);
    }

    // The same in every thread of a launch, most often true.
    __device__ __forceinline__ bool usual() const { return tensor_scale >= SMALLEST_USUAL && tensor_scale <= LARGEST_USUAL; }

    // The e4m3 byte; a NaN amax gives NaN. Not below 2^-6, the smallest normal e4m3.
    __device__ __forceinline__ uint32_t scale_of(float amax) const {
        float relative;
        if (usual()) {
            float limited;  // to far above 448 * 6 * tensor_scale, or infinity would become NaN; NaN stays
            asm("min.NaN.f32 %0, %1, %2;" : "=f"(limited) : "f"(amax), "f"(tensor_scale * 0x1p20f));
            relative = divide(divide<1>(limited, E2m1::MAX, 1.0f / E2m1::MAX), tensor_scale, inverse);
        } else {
            relative = any_quotient(any_quotient(amax, E2m1::MAX), tensor_scale);
        }
        float raised;
        asm("max.NaN.f32 %0, %1, %2;" : "=f"(raised) : "f"(relative), "f"(0x1p-6f));
        return Fp8<e4m3>::encode(raised, 0.0f);
    }

    __device__ __forceinline__ float multiplier(uint32_t scale) const {
        const float divisor = Fp8<e4m3>::decode(scale);
        return usual() ? divide<1>(inverse, divisor, approximate_reciprocal(divisor)) : any_quotient(inverse, divisor);
    }

    template <class In, int WORDS>
    __device__ __forceinline__ void encode_loaded(const typename In::Cell& loaded, float multiplier,
                                                  uint32_t (&cell)[WORDS]) const {
#if __CUDA_ARCH__ >= 1000
        float values[In::VALUES];
        In::to_float(loaded, values);
        cell[0] = e2m1_encode<In::VALUES>(values, multiplier);
#else
        if (usual()) {
            float values[In::VALUES];
            In::to_float(loaded, values);
            const uint32_t word = e2m1_magnitudes<In::VALUES>(values, multiplier * 0.125f) | In::nibble_signs(loaded);
            cell[0] = multiplier == multiplier ? word : 0;
        } else {  // 0 * infinity may be NaN, an eighth of the multiplier no float
            cell[0] = any_e2m1<In>(loaded, multiplier);
        }
#endif
    }

    // Rows, a word each -> the elements of every column, a word for eight rows.
    template <class In, int COLUMNS, int WORDS>
    __device__ __forceinline__ void encode_columns(const uint32_t* rows, const float (&multiplier)[COLUMNS],
                                                   uint32_t (&words)[COLUMNS][WORDS]) const {
#if __CUDA_ARCH__ < 1000
        if (usual()) {
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

}  // namespace zoo
