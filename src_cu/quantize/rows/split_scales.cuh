// The scales of COUNT blocks that LANES neighbouring lanes hold together. A scale costs a division, so each lane computes one scale and
// fetches the multipliers of the others by a shuffle. Included by rows/split_blocks.cuh, kernels/rows_fragments.cu and norm/.
//
//   16 lanes, 4 blocks:   lane    0   1   2   3 | 4   5   6   7 | 8 .. | 12 ..
//                         scale   of block 0    | 1             | 2    | 3          the first lane of each four stores it
#pragma once

#include <cstdint>

#include "common/warp.cuh"

namespace zoo {

template <int LANES, int COUNT>
struct SplitScales {
    static constexpr int NEIGHBOURS = LANES / COUNT;  // lanes that compute the same scale
    static_assert(NEIGHBOURS * COUNT == LANES);

    uint32_t scale;
    float multiplier;

    // The block whose scale this lane has, and whether it stores the scale.
    static __device__ __forceinline__ int own_block(int lane) { return lane % LANES / NEIGHBOURS; }
    static __device__ __forceinline__ bool stores(int lane) { return lane % NEIGHBOURS == 0; }

    // magnitudes: partial maxima of this lane's share of each block (common/input_values.cuh).
    template <class In, class Format>
    __device__ __forceinline__ void find(const Format& format, uint32_t (&magnitudes)[COUNT], int lane) {
        group_reduce_scatter<LANES, 1>(magnitudes, lane, In::larger);
        scale = format.scale_of(In::magnitude_to_float(In::magnitude(magnitudes[0])));
        multiplier = format.multiplier(scale);
    }
    __device__ __forceinline__ float multiplier_of(int block) const {
        return __shfl_sync(0xFFFFFFFF, multiplier, block * NEIGHBOURS, LANES);
    }
};

}  // namespace zoo
