// What a number format provides, and how a kernel finds the format of its dtypes.
//
// A quantised tensor has a dtype of elements and a dtype of scales. Together they name the format:
//
//     FormatOf<Element, Scale>              how quantisers encode it, and the launch argument that it is made from
//     FewRegisterFormatOf<Element, Scale>   the same format with a scale rule that holds no registers, where there is one
//     OtherFormatOf<Element, Scale>         the same format with further rules for scales, where there are some
//     DecoderOf<Element, Scale>::Type       how dequantisers decode it
//
// A format (Fp8b128, Mxfp8, Mxfp4, Nvfp4) has:
//
//     BLOCK, ELEMENTS_PER_BYTE, Scale              elements that share a scale, elements in a byte, how a scale is stored
//     DIVIDES_SCALES                               whether a scale takes a division: then one lane computes it for others
//     prepare()                                    reads what the format needs besides x: the tensor scale of NVFP4
//     scale_of(amax)                               the scale's bits, from the largest magnitude of a block
//     multiplier(scale)                            the number by which elements are multiplied
//     encode_loaded<In>(cell, multiplier, words)   the elements of a cell of input (common/input_values.cuh)
//     encode(values, multiplier)                   four elements in a word; only formats whose scales need no division
//     encode_columns<In>(rows, multiplier, words)  the elements of columns; only formats of two elements a byte
//
// A decoder has BLOCK, ELEMENTS_PER_BYTE, Scale, prepare() and:
//
//     decode(bytes, values)                        elements to float32, exactly
//     scale(values, scale)                         values times the number that the scale means, each product rounded once
#pragma once

#include <cstdint>

#include "common/variant.cuh"

namespace zoo {

template <class Element, class Scale>
struct FormatOf;

template <class Element, class Scale>
struct FewRegisterFormatOf : FormatOf<Element, Scale> {};

template <class Element, class Scale>
struct OtherFormatOf;

template <class Element, class Scale>
struct DecoderOf;

// Both arguments have 8 bytes, so that one kernel source serves all formats.
template <class Format>
struct FormatOfRule {
    using Type = Format;
    using Argument = int64_t;  // 1 chooses the second rule for scales: pow2, rceil or ceil

    static __device__ __forceinline__ Format make(Argument second, int64_t) { return Format(static_cast<int32_t>(second) != 0); }
};

template <class Format>
struct FormatOfTensorScale {
    using Type = Format;
    using Argument = const float*;

    // `entry`: index of the tensor scale.
    static __device__ __forceinline__ Format make(Argument tensor_scale, int64_t entry) { return Format(tensor_scale + entry); }
};

template <int COUNT>
__device__ __forceinline__ void multiply_each(float (&values)[COUNT], float factor) {
#pragma unroll
    for (int i = 0; i < COUNT; i++) values[i] = __fmul_rn(values[i], factor);
}

// Decodes blocks of 32 elements with a ue8m0 scale: what MXFP8 and MXFP4 have in common.
struct MxDecoder {
    static constexpr int BLOCK = 32;
    using Scale = uint8_t;

    __device__ __forceinline__ void prepare() {}
    template <int COUNT>
    __device__ __forceinline__ void scale(float (&values)[COUNT], Scale scale) const {
        const uint32_t bits = scale == 0 ? 0x00400000 : uint32_t(scale) << 23;  // 2^-127 is a subnormal
        multiply_each(values, __uint_as_float(scale == 255 ? 0x7FFFFFFF : bits));
    }
};

}  // namespace zoo
