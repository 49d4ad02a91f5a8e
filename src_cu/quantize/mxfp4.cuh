// The format MXFP4: 32 values share a ue8m0 scale; an element is e2m1, two a byte.
#pragma once

#include <cstdint>

#include "common/e2m1.cuh"
#include "common/e8m0.cuh"
#include "common/variant.cuh"
#include "quantize/packed_e2m1.cuh"

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
            cell[0] = PackedE2m1<In>::template encode<ROUNDING>(loaded, multiplier);
        } else {
            float values[In::VALUES];
            In::to_float(loaded, values);
            cell[0] = e2m1_encode<In::VALUES>(values, multiplier);
        }
    }
};

}  // namespace zoo
