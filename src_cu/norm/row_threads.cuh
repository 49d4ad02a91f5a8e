// Which threads of a CTA have which columns of a row, and how they add up a row. Included by all kernels of norm/ that work on rows.
//
// A warp has 1024 columns, so a row has one to sixteen warps. A CTA has as many whole rows as fit; warps that are left over idle.
// A lane has CELLS = 4 cells of 8 columns, 256 columns apart:
//
//     column     0 .. 7   8 .. 15   ...   248 .. 255 | 256 .. 263   ...         | 512 ..  | 768 .. 1023
//     lane       0        1         ...   31         | 0            ...         | 0 ..    | 0 .. 31
//     cell       0        0         ...   0          | 1            ...         | 2       | 3
//
// A sum over a row has a fixed order, whatever the number of rows (zoo/reference/norm.py). Columns c, c + 256, c + 512 and c + 768 are added
// by fused multiply-adds. Then neighbours are added in pairs: 256 sums of a warp, and the sums of the warps, until one is left.
#pragma once

#include <cstdint>

#include "common/division.cuh"
#include "common/global_memory.cuh"
#include "common/half.cuh"
#include "common/input_values.cuh"
#include "common/variant.cuh"

namespace zoo {

__device__ __forceinline__ float sum_of_lanes(float value) {
#pragma unroll
    for (int distance = 1; distance < 32; distance *= 2) value = __fadd_rn(value, __shfl_xor_sync(0xFFFFFFFF, value, distance));
    return value;
}

template <int THREADS>
struct RowThreads {
    static constexpr int WARPS = THREADS / 32, CELLS = 4, VALUES = 8, PIECE = 32 * VALUES, COLUMNS = CELLS * PIECE;
    static_assert(WARPS <= 32, "a lane for each warp");

    int lane, warp, warps_of_row, rows_of_cta, row_of_cta, warp_of_row;

    // Adding half a warp keeps quotients away from whole numbers, so an approximate reciprocal gives the quotient rounded down.
    __device__ __forceinline__ explicit RowThreads(int warps_of_row)
        : lane(threadIdx.x % 32), warp(threadIdx.x / 32), warps_of_row(warps_of_row) {
        const float inverse = approximate_reciprocal(float(warps_of_row));
        rows_of_cta = int((WARPS + 0.5f) * inverse);
        row_of_cta = int((warp + 0.5f) * inverse);
        warp_of_row = warp - row_of_cta * warps_of_row;
    }
    __device__ __forceinline__ int first_column() const { return warp_of_row * COLUMNS + lane * VALUES; }
    __device__ __forceinline__ bool first_of_row() const { return warp_of_row == 0 && lane == 0; }

    // The sum over the row in all its threads. All threads of the CTA call it. `sums` may be used again after the next barrier but one.
    __device__ __forceinline__ float sum(const float (&parts)[VALUES], float (&sums)[WARPS]) const {
        float pairs[VALUES / 2];
#pragma unroll
        for (int i = 0; i < VALUES / 2; i++) pairs[i] = __fadd_rn(parts[2 * i], parts[2 * i + 1]);
        float value = sum_of_lanes(__fadd_rn(__fadd_rn(pairs[0], pairs[1]), __fadd_rn(pairs[2], pairs[3])));
        if (warps_of_row == 1) return value;
        if (lane == 0) sums[warp] = value;
        __syncthreads();
        return sum_of_lanes(lane < warps_of_row ? sums[of_lane()] : 0.0f);
    }

    // The largest value of the row, likewise.
    __device__ __forceinline__ uint32_t largest(uint32_t value, uint32_t (&maxima)[WARPS]) const {
        value = __reduce_max_sync(0xFFFFFFFF, value);
        if (warps_of_row == 1) return value;
        if (lane == 0) maxima[warp] = value;
        __syncthreads();
        return __reduce_max_sync(0xFFFFFFFF, lane < warps_of_row ? maxima[of_lane()] : 0);
    }

   private:
    // The warp of this row whose result a lane reads. Warps that have no row read any.
    __device__ __forceinline__ int of_lane() const { return min(warp - warp_of_row + lane, WARPS - 1); }
};

// A lane's weights of one cell: of the dtype of x, or f32.
template <class Weight>
struct WeightCell {
    static constexpr int BYTES = 2;
    uint4 loaded;

    __device__ __forceinline__ void load(const uint8_t* weight, int column) { loaded = load_16_bytes(weight + BYTES * column); }
    __device__ __forceinline__ void to_float(float (&values)[8]) const { Input<Weight>::to_float(loaded, values); }
};

template <>
struct WeightCell<f32> {
    static constexpr int BYTES = 4;
    uint4 loaded[2];

    __device__ __forceinline__ void load(const uint8_t* weight, int column) {
        loaded[0] = load_16_bytes(weight + BYTES * column);
        loaded[1] = load_16_bytes(weight + BYTES * column + 16);
    }
    __device__ __forceinline__ void to_float(float (&values)[8]) const {
        const uint32_t words[8] = {loaded[0].x, loaded[0].y, loaded[0].z, loaded[0].w,
                                   loaded[1].x, loaded[1].y, loaded[1].z, loaded[1].w};
#pragma unroll
        for (int i = 0; i < 8; i++) values[i] = __uint_as_float(words[i]);
    }
};

// Fetches a weight into L2. It reads nothing, so it may run before the previous kernel has ended.
__device__ __forceinline__ void prefetch(const void* address) { asm volatile("prefetch.global.L2 [%0];" ::"l"(address)); }

// Eight numbers, rounded to 2-byte floats.
template <class X>
__device__ __forceinline__ uint4 encode_cell(const float (&values)[8]) {
    return make_uint4(encode_two<X>(values[0], values[1]), encode_two<X>(values[2], values[3]),
                      encode_two<X>(values[4], values[5]), encode_two<X>(values[6], values[7]));
}

__device__ __forceinline__ void store_cell(void* address, uint4 cell) { *static_cast<uint4*>(address) = cell; }

}  // namespace zoo
