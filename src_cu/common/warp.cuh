// Exchanges between lanes of a warp by shuffles.
#pragma once

#include <cstdint>

namespace zoo {

// Tells ptxas that a value is equal in all lanes. ptxas then keeps the value and what is computed from it, such as matrix descriptors and
// loop conditions, in uniform registers. It stops doing so behind a branch that lanes could take separately.
__device__ __forceinline__ int same_in_all_lanes(int value) { return __shfl_sync(0xFFFFFFFF, value, 0); }

// The maximum of `value` over each aligned group of LANES lanes, in every lane of the group.
template <int LANES>
__device__ __forceinline__ uint32_t group_max(uint32_t value) {
    static_assert(LANES > 0 && LANES <= 32 && (LANES & (LANES - 1)) == 0, "a group is 1, 2, 4, 8, 16 or 32 lanes");
#pragma unroll
    for (int distance = 1; distance < LANES; distance *= 2) value = max(value, __shfl_xor_sync(0xFFFFFFFF, value, distance));
    return value;
}

// The sum of `value` over the lanes of a warp up to and including this lane.
__device__ __forceinline__ int sum_of_lanes_up_to_this(int value) {
#pragma unroll
    for (int distance = 1; distance < 32; distance *= 2) {
        const int before = __shfl_up_sync(0xFFFFFFFF, value, distance);
        if (threadIdx.x % 32 >= distance) value += before;
    }
    return value;
}

// Transposes a LANES x LANES matrix of cells that LANES lanes hold, STRIDE lanes apart. Lane number `index` of the group holds column
// `index` before and row `index` after. For every bit of the index, lanes that differ in this bit swap half of their cells.
template <int STRIDE = 1, int LANES, int WORDS>
__device__ __forceinline__ void group_transpose(uint32_t (&cell)[LANES][WORDS], int index) {
#pragma unroll
    for (int bit = 1; bit < LANES; bit *= 2) {
        const bool upper = index & bit;
#pragma unroll
        for (int i = 0; i < LANES; i++) {
            if (i & bit) continue;
#pragma unroll
            for (int w = 0; w < WORDS; w++) {
                const uint32_t sent = upper ? cell[i][w] : cell[i | bit][w];
                const uint32_t received = __shfl_xor_sync(0xFFFFFFFF, sent, bit * STRIDE);
                cell[i][w] = upper ? received : cell[i][w];
                cell[i | bit][w] = upper ? cell[i | bit][w] : received;
            }
        }
    }
}

// Transposes 8 x 8 cells of 16 bits over 8 neighbouring lanes. Each cell is in the low half of a word before; afterwards lane j holds row
// j, two cells in a word. The first bit of the index swaps inside words.
__device__ __forceinline__ void group_transpose_halves(const uint32_t (&cell)[8][1], int lane, uint32_t (&row)[4]) {
    uint32_t pairs[4][1];
#pragma unroll
    for (int i = 0; i < 4; i++) {  // an even lane gets row 2 i, an odd lane row 2 i + 1
        const uint32_t own = __byte_perm(cell[2 * i][0], cell[2 * i + 1][0], 0x5410);
        const uint32_t other = __shfl_xor_sync(0xFFFFFFFF, own, 1);
        pairs[i][0] = __byte_perm(own, other, lane & 1 ? 0x3276 : 0x5410);
    }
    group_transpose<2>(pairs, lane / 2);
#pragma unroll
    for (int i = 0; i < 4; i++) row[i] = pairs[i][0];
}

// Reduce-scatter over LANES lanes, STRIDE lanes apart: combines value i of all lanes, for N values. Lane number `index` of the group gets
// results index * N / LANES and following, N / LANES of them, in values[0..]. If there are more lanes than values, LANES / N neighbours get
// the same result. For every bit of the index a lane sends the half that it does not keep: N / 2 + N / 4 + ... shuffles. An all-reduce
// would take N shuffles for each bit.
template <int LANES, int STRIDE, int N, class Combine>
__device__ __forceinline__ void group_reduce_scatter(uint32_t (&values)[N], int index, Combine combine) {
    int left = N;
#pragma unroll
    for (int bit = LANES / 2; bit > 0; bit /= 2) {
        const bool upper = index & bit;
        const bool halve = left > 1;
        if (halve) left /= 2;
#pragma unroll
        for (int i = 0; i < N / 2; i++) {
            if (i >= left) continue;
            const uint32_t kept = halve && upper ? values[left + i] : values[i];
            const uint32_t sent = halve && !upper ? values[left + i] : values[i];
            values[i] = combine(kept, __shfl_xor_sync(0xFFFFFFFF, sent, bit * STRIDE));
        }
    }
}

}  // namespace zoo
