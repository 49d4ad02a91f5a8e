// 4-bit weights as checkpoints have them, and as a warpgroup's registers take them (docs/four_bit_weights.md has the layout).
//
// A unit is 16 packed rows: what one warp of the warpgroup will multiply, and a warp here. A chunk is 64 columns of a tile of 64 rows, and a
// quarter of it is the unit's: a lane 4 g + q has 16 columns of the rows g and g + 8, which lie in 8 bytes each in a checkpoint and, for FP8, in 16
// bytes that follow each other packed; for bf16 four lanes exchange (fragment_words.cuh).
//
//     checkpoint, 16 rows of 32 bytes      row 0   |q=0 |q=1 |q=2 |q=3 |  lanes 0-3, first half of their 16 bytes
//                                          ...
//                                          row 8   |    |    |    |    |  lanes 0-3, second half
//
// A warp takes GROUP chunks side by side, all loads first: 128 bytes of a row. A CTA takes whole chunks, twice as many. Where scales become
// relative to others of their row, it takes units whole: fragments_relative.cu.
#pragma once

#include <cstdint>

#include "common/variant.cuh"

namespace zoo {

constexpr int ROWS_OF_UNIT = 16, UNITS_OF_TILE = 4, COLUMNS_OF_CHUNK = 64, CODE_BYTES = 2048;
constexpr int GROUP = 4, GROUPS_OF_CTA = 2, CHUNKS_OF_CTA = GROUP * GROUPS_OF_CTA;

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

// By the dtype of the scales: how many codes share one, and where in a chunk those of a lane's two rows lie, which are neighbours.
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

// What the weights will be multiplied with, which says in which of two orders they lie.
enum class Tokens { fp8, bf16 };

enum class Gates { plain, halves, interleaved };

__device__ __forceinline__ Gates gates_of(int launched) { return static_cast<Gates>(launched); }

// The row of the matrix that is row 8 half + g of the unit.
__device__ __forceinline__ int source_row(Gates gates, int unit, int half, int g, int N) {
    const int output = unit * (ROWS_OF_UNIT / 2) + g;
    if (gates == Gates::halves) return output + half * (N / 2);
    if (gates == Gates::interleaved) return 2 * output + half;
    return unit * ROWS_OF_UNIT + 8 * half + g;
}

// What a warp takes. CTAs of one tile follow each other.
struct GroupOfWarp {
    int tile, place, unit, chunks, first_chunk;

    __device__ __forceinline__ explicit GroupOfWarp(int K) : chunks((K + COLUMNS_OF_CHUNK - 1) / COLUMNS_OF_CHUNK) {
        const unsigned warp = threadIdx.x / 32, ctas_of_tile = (chunks + CHUNKS_OF_CTA - 1) / CHUNKS_OF_CTA;
        tile = blockIdx.x / ctas_of_tile, place = warp % UNITS_OF_TILE, unit = tile * UNITS_OF_TILE + place;
        first_chunk = (blockIdx.x - tile * ctas_of_tile) * CHUNKS_OF_CTA + warp / UNITS_OF_TILE * GROUP;
    }

    // Of those of all matrices.
    __device__ __forceinline__ int64_t tile_of_all(int64_t expert, int N) const {
        return expert * ((N + ROWS_OF_UNIT * UNITS_OF_TILE - 1) / (ROWS_OF_UNIT * UNITS_OF_TILE)) + tile;
    }
};

// Two rows of a lane, of codes as of scales: -1 where there is none.
struct RowPair {
    int row[2];

    __device__ __forceinline__ RowPair(Gates gates, int unit, int g, int N) {
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
