// 4-bit weights in the order of a checkpoint and in fragment order, the order of a warpgroup's registers (docs/four_bit_weights.md has the
// layout). All kernels pack.*.fragments and unpack.*.fragments use it.
//
// A unit is 16 packed rows, which one warp of the warpgroup multiplies and one warp rearranges here. A chunk is 64 columns of a tile of 64
// rows, and a quarter of it belongs to a unit. Lane 4 g + q has 16 columns of rows g and g + 8: 8 bytes each in a checkpoint. Packed for FP8,
// they are 16 consecutive bytes. Packed for bf16, four lanes exchange them (fragment_words.cuh).
//
//     checkpoint, 16 rows of 32 bytes      row 0   |q=0 |q=1 |q=2 |q=3 |  lanes 0-3, first half of their 16 bytes
//                                          ...
//                                          row 8   |    |    |    |    |  lanes 0-3, second half
//
// A warp takes CHUNKS_OF_WARP neighbouring chunks, 128 bytes of a row, and starts all loads first. A CTA takes whole chunks, WARPS_ACROSS
// times as many. fragments_relative.cu takes whole units instead, because it needs the largest scale of a row.
#pragma once

#include <cstdint>

#include "common/variant.cuh"

namespace zoo {

constexpr int ROWS_OF_UNIT = 16, UNITS_OF_TILE = 4, COLUMNS_OF_CHUNK = 64, CODE_BYTES = 2048;
constexpr int CHUNKS_OF_WARP = 4, WARPS_ACROSS = 2, CHUNKS_OF_CTA = CHUNKS_OF_WARP * WARPS_ACROSS;

__device__ __forceinline__ uint2 load_8_bytes(const void* address) {
    uint2 v;
    asm volatile("ld.global.v2.u32 {%0, %1}, [%2];" : "=r"(v.x), "=r"(v.y) : "l"(address));
    return v;
}

__device__ __forceinline__ uint32_t load_byte(const void* address) {
    uint32_t v;
    asm volatile("ld.global.u8 %0, [%1];" : "=r"(v) : "l"(address));
    return v;
}

__device__ __forceinline__ uint32_t load_2_bytes(const void* address) {
    uint16_t v;
    asm volatile("ld.global.u16 %0, [%1];" : "=h"(v) : "l"(address));
    return v;
}

// Scale: the dtype of the scales. BLOCK codes share a scale. scale_byte() is the offset in a chunk of the two scales of a lane's rows.
template <class Scale>
struct Fragments;

template <>
struct Fragments<e4m3> {
    static constexpr int BLOCK = 16, CHUNK_BYTES = CODE_BYTES + 256;
    static __device__ __forceinline__ int scale_byte(int warp, int lane) { return CODE_BYTES + 64 * warp + 2 * lane; }
};

template <>
struct Fragments<ue8m0> {
    static constexpr int BLOCK = 32, CHUNK_BYTES = CODE_BYTES + 128;
    static __device__ __forceinline__ int scale_byte(int warp, int lane) {
        return CODE_BYTES + 32 * warp + lane / 4 * 4 + lane % 4 / 2 * 2;
    }
};

// The activations that the weights will be multiplied with. They decide between two orders of packed weights.
enum class Tokens { fp8, bf16 };

// The rows of the matrix that are gates and ups: none, two halves, or even and odd rows.
enum class Gates { plain, halves, interleaved };

// The row of the matrix that becomes row 8 half + g of the unit.
__device__ __forceinline__ int source_row(Gates gates, int unit, int half, int g, int N) {
    const int output = unit * (ROWS_OF_UNIT / 2) + g;
    if (gates == Gates::halves) return output + half * (N / 2);
    if (gates == Gates::interleaved) return 2 * output + half;
    return unit * ROWS_OF_UNIT + 8 * half + g;
}

// The unit and the chunks of a warp. CTAs of a tile have consecutive indices.
struct WarpPosition {
    int tile, unit_of_tile, unit, chunks, first_chunk;

    __device__ __forceinline__ explicit WarpPosition(int K) : chunks((K + COLUMNS_OF_CHUNK - 1) / COLUMNS_OF_CHUNK) {
        const unsigned warp = threadIdx.x / 32, ctas_of_tile = (chunks + CHUNKS_OF_CTA - 1) / CHUNKS_OF_CTA;
        tile = blockIdx.x / ctas_of_tile, unit_of_tile = warp % UNITS_OF_TILE, unit = tile * UNITS_OF_TILE + unit_of_tile;
        first_chunk = (blockIdx.x - tile * ctas_of_tile) * CHUNKS_OF_CTA + warp / UNITS_OF_TILE * CHUNKS_OF_WARP;
    }

    // The index of the tile among the tiles of all experts.
    __device__ __forceinline__ int64_t tile_of_experts(int64_t expert, int N) const {
        return expert * ((N + ROWS_OF_UNIT * UNITS_OF_TILE - 1) / (ROWS_OF_UNIT * UNITS_OF_TILE)) + tile;
    }
};

// The two rows of a lane, for codes and scales. A row that does not exist is -1.
struct LaneRows {
    int row[2];

    __device__ __forceinline__ LaneRows(Gates gates, int unit, int g, int N) {
#pragma unroll
        for (int half = 0; half < 2; half++)
            row[half] = unit * ROWS_OF_UNIT + 8 * half + g < N ? source_row(gates, unit, half, g, N) : -1;
    }

    __device__ __forceinline__ bool exists(int half) const { return row[half] >= 0; }
    template <class T>
    __device__ __forceinline__ T* in(T* matrix, int64_t stride, int half) const {
        return matrix + row[half] * stride;
    }
};

}  // namespace zoo
