// Exchanges among neighbouring lanes of a warp.
#pragma once

#include <cstdint>

namespace zoo {

// The largest `value` of each aligned group of LANES lanes, in every lane of the group.
template <int LANES>
__device__ __forceinline__ uint32_t group_max(uint32_t value) {
    static_assert(LANES > 0 && LANES <= 32 && (LANES & (LANES - 1)) == 0, "a group is 1, 2, 4, 8, 16 or 32 lanes");
#pragma unroll
    for (int distance = 1; distance < LANES; distance *= 2)
        value = max(value, __shfl_xor_sync(0xFFFFFFFF, value, distance));
    return value;
}

// Each aligned group of LANES lanes holds a LANES x LANES matrix of cells, lane j its column j; afterwards lane j holds
// row j. For every bit of the lane, lanes that differ in it swap the half that belongs to the other.
template <int LANES, int WORDS>
__device__ __forceinline__ void group_transpose(uint32_t (&cell)[LANES][WORDS], int lane) {
#pragma unroll
    for (int bit = 1; bit < LANES; bit *= 2) {
        const bool upper = lane & bit;
#pragma unroll
        for (int i = 0; i < LANES; i++) {
            if (i & bit) continue;
#pragma unroll
            for (int w = 0; w < WORDS; w++) {
                const uint32_t sent = upper ? cell[i][w] : cell[i | bit][w];
                const uint32_t received = __shfl_xor_sync(0xFFFFFFFF, sent, bit);
                cell[i][w] = upper ? received : cell[i][w];
                cell[i | bit][w] = upper ? cell[i | bit][w] : received;
            }
        }
    }
}

}  // namespace zoo
