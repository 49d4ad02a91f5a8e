// 4-bit weights as checkpoints have them, and as a warpgroup's registers take them (docs/four_bit_weights.md has the layout).
//
// A unit is 16 packed rows: what one warp of the warpgroup will multiply, and a CTA here. A chunk is 64 columns of a tile of 64 rows, and a
// quarter of it is the unit's: a lane 4 g + q has 16 columns of the rows g and g + 8, which lie in 8 bytes each in a checkpoint and in 16
// bytes that follow each other packed. So nothing is exchanged among lanes.
//
//     checkpoint, 16 rows of 32 bytes      row 0   |q=0 |q=1 |q=2 |q=3 |  lanes 0-3, first half of their 16 bytes
//                                          ...
//                                          row 8   |    |    |    |    |  lanes 0-3, second half
//
// A warp takes GROUP chunks side by side, all loads first: 128 bytes of a row. A CTA takes a part of a unit: 2048 columns. Where scales
// become relative to others of their row, it takes units whole: fragments_relative.cu.
#pragma once

#include <cstdint>

#include "common/variant.cuh"

namespace zoo {

constexpr int ROWS_OF_UNIT = 16, UNITS_OF_TILE = 4, COLUMNS_OF_CHUNK = 64, CODE_BYTES = 2048;
constexpr int GROUP = 4, CHUNKS_OF_PART = 32;

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

// Eight codes: the signs, bit 4 j + 3 of code j, to bit 8 j + 7 of the first four and bit 8 (j - 4) + 3 of the others; and back.
__device__ __forceinline__ uint32_t braided(uint32_t codes) {
    const uint32_t first = __byte_perm(codes, 0, 0x1100), others = __byte_perm(codes, 0, 0x3322);
    return codes & 0x77777777 | first << 4 & 0x00800080 | first & 0x80008000 | others & 0x00080008 | others >> 4 & 0x08000800;
}
__device__ __forceinline__ uint32_t unbraided(uint32_t words) {
    const uint32_t first = words >> 4 & 0x00080008 | words & 0x80008000;  // bits 3, 15, 19, 31: of codes 0, 1, 2, 3
    const uint32_t others = words & 0x00080008 | words << 4 & 0x80008000;
    const uint32_t low = first | first >> 8, high = others | others >> 8;  // bytes 0 and 2: both signs of a pair
    return words & 0x77777777 | __byte_perm(low, high, 0x6420) & 0x88888888;
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

enum class Gates { plain, halves, interleaved };

__device__ __forceinline__ Gates gates_of(int launched) { return static_cast<Gates>(launched); }

// The row of the matrix that is row 8 half + g of the unit.
__device__ __forceinline__ int source_row(Gates gates, int unit, int half, int g, int N) {
    const int output = unit * (ROWS_OF_UNIT / 2) + g;
    if (gates == Gates::halves) return output + half * (N / 2);
    if (gates == Gates::interleaved) return 2 * output + half;
    return unit * ROWS_OF_UNIT + 8 * half + g;
}

// Two rows of a lane, of the codes or of the scales: null where there is none.
struct RowPair {
    const uint8_t* row[2];

    __device__ __forceinline__ RowPair(const uint8_t* matrix, int64_t stride, Gates gates, int unit, int g, int N) {
#pragma unroll
        for (int half = 0; half < 2; half++)
            row[half] = unit * ROWS_OF_UNIT + 8 * half + g < N ? matrix + source_row(gates, unit, half, g, N) * stride : nullptr;
    }
};

}  // namespace zoo
