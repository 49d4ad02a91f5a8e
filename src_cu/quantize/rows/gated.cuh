// A source of rows (rows/matrix.cuh): activation(gate) * up in float32. Included by kernels/token_swiglu.cu.
//
//   gates and ups    in one of three orders. A lane reads two times 16 bytes:
//                        halves         16 bytes of gates, and 16 bytes of ups K columns further
//                        interleaved    gate, up, gate, up ...: 32 bytes, which the lane deinterleaves after the load
//                        packed         8 gates, then their 8 ups: the columns of D of packed weights with gates and ups
//   alpha            factors of the gates and of the ups of the row's group. Each product with alpha is rounded to f32
//   activation       gemm/epilogue/activation.cuh
//
// zoo/reference/swiglu.py defines the arithmetic to the bit. Registers are scarce, so alpha is in shared memory, and one address serves both loads.
#pragma once

#include <cstdint>

#include "common/global_memory.cuh"
#include "gemm/epilogue/activation.cuh"
#include "quantize/rows/swiglu.cuh"

namespace zoo {

enum class Gates { halves, interleaved, packed };

// `ends` has the end row of each group. A kernel without `alpha` does not search for the group of a row.
struct GroupFactors {
    const float* alpha;  // (groups, 2)
    const int* ends;
    int groups;
    float (*of_warps)[2];  // in shared memory: alpha of each warp's row

    // The group of a row before the last end: a warp counts the groups that end at or before the row.
    __device__ __forceinline__ int group_of(uint64_t row) const {
        const int lane = threadIdx.x % 32;
        int group = 0;
        for (int first = 0; first < groups; first += 32)
            group += __popc(__ballot_sync(0xFFFFFFFF, first + lane < groups && load_int(ends + first + lane) <= int(row)));
        return group;
    }
};

// Rows have 2 K columns and are `stride` elements apart.
template <class X>
struct Gated {
    using In = typename Swiglu<X>::In;
    using Loaded = typename Swiglu<X>::Loaded;
    static constexpr int VALUES = Swiglu<X>::VALUES, BYTES = Swiglu<X>::BYTES;

    const uint8_t* x;
    int64_t stride;  // in bytes
    int to_ups;      // bytes from the first load to the second
    Gates gates;
    GroupFactors factors;
    ActivationKind kind;
    float limit;

    __device__ __forceinline__ Gated(const uint8_t* x, int64_t stride, int K, Gates gates, GroupFactors factors,
                                     ActivationKind kind, float limit)
        : x(x), stride(stride * BYTES), to_ups(gates == Gates::halves ? K * BYTES : 16), gates(gates), factors(factors),
          kind(kind), limit(limit) {
        const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
        if (factors.alpha != nullptr && lane < 2) factors.of_warps[warp][lane] = 1.0f;  // for warps without a row
        __syncwarp();
    }

    __device__ __forceinline__ int column_bytes() const { return gates == Gates::halves ? BYTES : 2 * BYTES; }

    // A whole warp calls this with one row.
    __device__ __forceinline__ void start_at(uint64_t row, uint64_t column) {
        x += row * stride + column * column_bytes();
        asm("" : "+l"(x));  // opaque, or the compiler recomputes the address for every load
        if (factors.alpha == nullptr) return;
        const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, group = factors.group_of(row);
        if (lane < 2) factors.of_warps[warp][lane] = factors.alpha[2 * int64_t(group) + lane];
        __syncwarp();
    }

    __device__ __forceinline__ Loaded load(int row, int column) const {
        const uint8_t* first = x + (row * stride + int64_t(column) * column_bytes());
        return {load_16_bytes(first), load_16_bytes(first + to_ups)};
    }

    template <int CELLS>
    __device__ __forceinline__ void finish(Loaded (&loaded)[CELLS], typename In::Cell (&cells)[CELLS]) const {
        const Activation activation(kind, limit);
        if (gates == Gates::interleaved)
#pragma unroll
            for (int i = 0; i < CELLS; i++) Swiglu<X>::deinterleave(loaded[i]);
#pragma unroll
        for (int i = 0; i < CELLS; i++) {
            float of_gates[VALUES], of_ups[VALUES];
            Input<X>::to_float(loaded[i].first, of_gates);
            Input<X>::to_float(loaded[i].second, of_ups);
            if (factors.alpha != nullptr) {
                const float* alpha = factors.of_warps[threadIdx.x / 32];
#pragma unroll
                for (int v = 0; v < VALUES; v++)
                    of_gates[v] = __fmul_rn(of_gates[v], alpha[0]), of_ups[v] = __fmul_rn(of_ups[v], alpha[1]);
            }
            if (kind != ActivationKind::silu)
#pragma unroll
                for (int v = 0; v < VALUES; v++) activation.limit_both(of_gates[v], of_ups[v]);
#pragma unroll
            for (int v = 0; v < VALUES; v++) cells[i].values[v] = activation.of_limited(of_gates[v], of_ups[v]);
        }
    }
};

}  // namespace zoo
