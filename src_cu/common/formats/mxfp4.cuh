// MXFP4: 32 values share a ue8m0 scale; an element is e2m1, two in a byte.
#pragma once

#include <cstdint>

#include "common/e2m1.cuh"
#include "common/e8m0.cuh"
#include "common/formats/chosen_rule.cuh"
#include "common/formats/format.cuh"
#include "common/packed_e2m1.cuh"
#include "common/variant.cuh"

namespace zoo {

template <Rounding ROUNDING>
struct Mxfp4 {
    static constexpr int BLOCK = 32;
    static constexpr int ELEMENTS_PER_BYTE = 2;
    static constexpr bool DIVIDES_SCALES = true;
    using Scale = uint8_t;

    __device__ __forceinline__ void prepare() {}

    __device__ __forceinline__ uint32_t scale_of(float amax) const { return e8m0_of<ROUNDING, E2m1>(amax); }

    __device__ __forceinline__ float multiplier(uint32_t scale) const { return e8m0_inverse(scale); }

    template <class In, int WORDS>
    __device__ __forceinline__ void encode_loaded(const typename In::Cell& loaded, float multiplier,
                                                  uint32_t (&cell)[WORDS]) const {
        if constexpr (PackedE2m1<In>::EXISTS) {
            cell[0] = PackedE2m1<In>::encode(loaded, multiplier);
        } else {
            float values[In::VALUES];
            In::to_float(loaded, values);
            cell[0] = e2m1_encode<In::VALUES>(values, multiplier);
        }
    }

    // Input: a word for each row. Result: the elements of each column, a word for eight rows.
    template <class In, int COLUMNS, int WORDS>
    __device__ __forceinline__ void encode_columns(const uint32_t* rows, const float (&multiplier)[COLUMNS],
                                                   uint32_t (&words)[COLUMNS][WORDS]) const {
#pragma unroll
        for (int w = 0; w < WORDS; w++)
            if constexpr (PackedE2m1<In>::EXISTS) {
                uint32_t pair[2];
                PackedE2m1<In>::template encode_columns<ROUNDING>(rows + 8 * w, multiplier, pair);
                words[0][w] = pair[0];
                words[1][w] = pair[1];
            } else {
#pragma unroll
                for (int c = 0; c < COLUMNS; c++) {
                    float values[8];
                    column_values<In>(rows + 8 * w, c, values);
                    words[c][w] = e2m1_encode<8>(values, multiplier[c]);
                }
            }
    }
};

struct Mxfp4Decoder : MxDecoder {
    static constexpr int ELEMENTS_PER_BYTE = 2;

    template <int COUNT>
    __device__ __forceinline__ void decode(uint2 bytes, float (&values)[COUNT]) const {
        decode_e2m1(bytes.x, values);
    }
};

template <>
struct FormatOf<e2m1x2, ue8m0> : FormatOfRule<RuleInRegisters<Mxfp4<Rounding::floor>, E8m0Rule<E2m1>>> {};

template <>
struct OtherFormatOf<e2m1x2, ue8m0> : FormatOfRule<RuleInRegisters<Mxfp4<Rounding::floor>, E8m0EvenOrCeil<E2m1>>> {};

template <>
struct FewRegisterFormatOf<e2m1x2, ue8m0> : FormatOfRule<RuleBySelection<Mxfp4<Rounding::floor>, Mxfp4<Rounding::rceil>>> {};

template <>
struct DecoderOf<e2m1x2, ue8m0> {
    using Type = Mxfp4Decoder;
};

}  // namespace zoo
