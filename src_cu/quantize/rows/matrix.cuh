// A source of rows: a plain matrix. Also defines what every source provides. Included by the kernels that quantise rows of
// a matrix. rows/swiglu.cuh is the other source.
//
//  In                         the type of a cell (common/input_values.cuh): what a lane reads at a time
//  start_at(row, column)      the origin from which load() counts
//  load(row, column)          issues the load of one cell
//  finish(loaded, cells)      turns loaded bytes into cells, after all loads have been issued
#pragma once

#include <cstdint>

#include "common/global_memory.cuh"
#include "common/input_values.cuh"

namespace zoo {

// Rows are `stride` elements apart.
template <class X>
struct Matrix {
    using In = Input<X>;
    using Loaded = uint4;
    static constexpr int BYTES = 16 / In::VALUES;  // bytes of an element

    const uint8_t* x;
    int64_t stride;

    __device__ __forceinline__ void start_at(uint64_t row, uint64_t column) {
        x += (row * stride + column) * BYTES;
        asm("" : "+l"(x));  // opaque, or the compiler recomputes the address for every load
    }
    __device__ __forceinline__ uint4 load(int row, int column) const {
        return load_16_bytes(x + (row * stride + column) * BYTES);
    }

    template <int CELLS>
    __device__ __forceinline__ void finish(const uint4 (&loaded)[CELLS], uint4 (&cells)[CELLS]) const {
#pragma unroll
        for (int i = 0; i < CELLS; i++) cells[i] = loaded[i];
    }
};

}  // namespace zoo
