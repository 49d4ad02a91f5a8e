// Exchanges among neighbouring lanes of a warp.
#pragma once

#include <cstdint>

namespace zoo {

// What is the same in all lanes of a warp, told to ptxas, which then keeps it, and what follows from it, in uniform registers: a matrix
// descriptor, or whether a loop goes on. A branch that lanes might take each for itself, as far as ptxas knows, ends that for all behind it.
__device__ __forceinline__ int same_in_all_lanes(int value) { return __shfl_sync(0xFFFFFFFF, value, 0); }

// The largest `value` of each aligned group of LANES lanes, in every lane of the group.
template <int LANES>
__device__ __forceinline__ uint32_t group_max(uint32_t value) {
    static_assert(LANES > 0 && LANES <= 32 && (LANES & (LANES - 1)) == 0, "a group is 1, 2, 4, 8, 16 or 32 lanes");
#pragma unroll
    for (int distance = 1; distance < LANES; distance *= 2) value = max(value, __shfl_xor_sync(0xFFFFFFFF, value, distance));
    return value;
}

// The sum of `value` over the lanes of a warp up to this one.
__device__ __forceinline__ int sum_of_lanes_up_to_this(int value) {
#pragma unroll
    for (int distance = 1; distance < 32; distance *= 2) {
        const int before = __shfl_up_sync(0xFFFFFFFF, value, distance);
        if (threadIdx.x % 32 >= distance) value += before;
    }
    return value;
}

// Each group of LANES lanes, STRIDE lanes apart, holds a LANES x LANES matrix of cells, the lane at place j its column j;
// afterwards it holds row j. For every bit of the place, lanes that differ in it swap the half that belongs to the other.
template <int STRIDE = 1, int LANES, int WORDS>
__device__ __forceinline__ void group_transpose(uint32_t (&cell)[LANES][WORDS], int place) {
#pragma unroll
    for (int bit = 1; bit < LANES; bit *= 2) {
        const bool upper = place & bit;
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

// The same for 8 neighbouring lanes and cells of 16 bits, each in the low half of a word: lane j gets row j, two cells a
// word. The first bit swaps within words.
__device__ __forceinline__ void group_transpose_halves(const uint32_t (&cell)[8][1], int lane, uint32_t (&row)[4]) {
    uint32_t pairs[4][1];
#pragma unroll
    for (int i = 0; i < 4; i++) {  // lanes that differ in bit 0: the even one gets row 2 i, the odd one row 2 i + 1
        const uint32_t own = __byte_perm(cell[2 * i][0], cell[2 * i + 1][0], 0x5410);
        const uint32_t other = __shfl_xor_sync(0xFFFFFFFF, own, 1);
        pairs[i][0] = __byte_perm(own, other, lane & 1 ? 0x3276 : 0x5410);
    }
    group_transpose<2>(pairs, lane / 2);
#pragma unroll
    for (int i = 0; i < 4; i++) row[i] = pairs[i][0];
}

// Each of a group of LANES lanes, STRIDE lanes apart, has N values, and value i of all is to be combined. The lane at
// place j learns its share of the results only: those from j * N / LANES on, as many as N / LANES, in values[0..]. With
// more lanes than values, LANES / N neighbours learn the same one. For every bit of the place a lane gives away the half
// that is not its own: N / 2 + N / 4 + ... shuffles, where every lane learning everything takes N for each bit.
template <int LANES, int STRIDE, int N, class Combine>
__device__ __forceinline__ void group_reduce_scatter(uint32_t (&values)[N], int place, Combine combine) {
    int left = N;
#pragma unroll
    for (int bit = LANES / 2; bit > 0; bit /= 2) {
        const bool upper = place & bit;
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
