// Where finished numbers go: rounded to D, or quantised to elements and blocked scales, as quantisers leave them, that are an operand
// of the next product. A thread gives 32 neighbouring columns of a row, or the lanes of a warp give a few columns each of one row.
//
// Who has a tile of D writes its scales: 128 rows of a tile of scales, of rows that are nobody's zeros. Who has the last columns
// writes zeros for the blocks up to a multiple of four, too.
#pragma once

#include "common/e2m1.cuh"
#include "common/e8m0.cuh"
#include "common/fp8.cuh"
#include "common/global_memory.cuh"
#include "common/magnitude.cuh"
#include "common/warp.cuh"
#include "gemm/block_scaled/finish.cuh"
#include "gemm/block_scaled/tile.cuh"

namespace zoo {

// A row of a tile of D. `there`: else it is padding.
struct RowOfTile {
    const ScaledWork& work;
    int index;  // in the tile

    __device__ __forceinline__ bool there() const { return index < work.rows; }
    __device__ __forceinline__ int row() const { return work.row + index; }
    __device__ __forceinline__ int row_of_tiles() const { return work.token_scales + index / SCALE_TILE_ROWS; }
};

// D, in bf16, f16 or f32.
struct Rounded {
    static constexpr bool PADS = false;
    const Finish& finish;
    int columns;  // of D

    __device__ __forceinline__ Rounded of(int) const { return *this; }

    __device__ __forceinline__ void store_segment(const RowOfTile& row, int column, const float (&values)[SEGMENT]) const {
        if (row.there()) finish.store_columns(values, row.row(), column, columns - column);
    }

    template <int COUNT>
    __device__ __forceinline__ void store_by_warp(const RowOfTile& row, int column, const float (&values)[COUNT]) const {
        if (!row.there() || column >= columns) return;
#pragma unroll
        for (int i = 0; i < COUNT; i++) finish.store_one_finished(values[i], row.row(), column + i);
    }
};

// e4m3 or e5m2, by either rule for scales: the same computation with other numbers.
struct ToMxfp8 {
    static constexpr int BLOCK = 32, PER_BYTE = 1, PER_WORD = 4;
    struct Argument {
        int64_t rceil;
    };
    E8m0Rule<Fp8<e4m3>> rule;
    bool e5m2_elements;

    __device__ __forceinline__ ToMxfp8(Argument argument, int type, int) : rule(argument.rceil != 0), e5m2_elements(type != 0) {
        if (e5m2_elements) rule.factor = E8m0Rule<Fp8<e5m2>>(argument.rceil != 0).factor;
    }

    __device__ __forceinline__ uint32_t scale_of(float amax) const { return rule.scale_of(amax); }
    __device__ __forceinline__ float multiplier(uint32_t scale) const { return e8m0_inverse(scale); }

    // Up to four elements, the first in the lowest byte.
    template <int COUNT>
    __device__ __forceinline__ uint32_t encode(const float* values, float multiplier) const {
        uint32_t word = 0;
#pragma unroll
        for (int i = 0; i < COUNT; i += 2) {
            const float first = values[i] * multiplier, second = values[i + 1] * multiplier;
            const uint32_t pair = e5m2_elements ? Fp8<e5m2>::encode(first, second) : Fp8<e4m3>::encode(first, second);
            word |= pair << 8 * i;
        }
        return word;
    }
};

// e2m1. Plain divisions, without the shortcuts of quantize/nvfp4.cuh: there are three for 16 elements.
struct ToNvfp4 {
    static constexpr int BLOCK = 16, PER_BYTE = 2, PER_WORD = 8;
    struct Argument {
        const float* tensor_scale;
    };
    float tensor_scale, inverse;

    __device__ __forceinline__ ToNvfp4(Argument argument, int, int index)
        : tensor_scale(argument.tensor_scale[index]), inverse(__frcp_rn(tensor_scale)) {}

    __device__ __forceinline__ uint32_t scale_of(float amax) const {
        float raised;  // to the smallest normal e4m3
        asm("max.NaN.f32 %0, %1, %2;" : "=f"(raised) : "f"(__fdiv_rn(__fdiv_rn(amax, E2m1::MAX), tensor_scale)), "f"(0x1p-6f));
        return Fp8<e4m3>::encode(raised, 0.0f) & 0xFF;
    }
    __device__ __forceinline__ float multiplier(uint32_t scale) const { return __fdiv_rn(inverse, Fp8<e4m3>::decode(scale)); }

    template <int COUNT>
    __device__ __forceinline__ uint32_t encode(const float* values, float multiplier) const {
        return e2m1_encode<COUNT>(values, multiplier);
    }
};

// Elements, rows `stride` bytes apart, and their scales. `columns` a multiple of 32.
template <class Format_>
struct Quantised {
    using Format = Format_;
    static constexpr int BLOCK = Format::BLOCK;
    uint8_t* q;
    int64_t stride;
    uint8_t* scales;
    int columns, type;
    typename Format::Argument argument;
    int argument_stride;  // 0: one for all groups

    // For the rows of one group.
    struct OfGroup {
        static constexpr bool PADS = true;
        const Quantised& to;
        Format format;

        __device__ __forceinline__ void store_segment(const RowOfTile& row, int column, const float (&values)[SEGMENT]) const {
            if (column >= to.columns) return;
            uint32_t words[SEGMENT / Format::PER_WORD], scale_bytes = 0;
#pragma unroll
            for (int b = 0; b < SEGMENT / BLOCK; b++) {
                const float* block = &values[b * BLOCK];
                float amax = 0;
#pragma unroll
                for (int i = 0; i < BLOCK; i++) amax = larger_magnitude(amax, block[i]);
                const uint32_t scale = format.scale_of(amax);
                const float multiplier = format.multiplier(scale);
                scale_bytes |= scale << 8 * b;
#pragma unroll
                for (int w = 0; w < BLOCK / Format::PER_WORD; w++)
                    words[b * BLOCK / Format::PER_WORD + w] =
                        format.template encode<Format::PER_WORD>(&block[w * Format::PER_WORD], multiplier);
            }
            if (row.there()) {
                uint8_t* target = to.q + row.row() * to.stride + column / Format::PER_BYTE;
#pragma unroll
                for (int w = 0; w < SEGMENT / Format::PER_WORD; w += 4) store_16_bytes(target + 4 * w, &words[w]);
            }
#pragma unroll
            for (int b = 0; b < SEGMENT / BLOCK; b++) *to.scale(row, column / BLOCK + b) = row.there() ? scale_bytes >> 8 * b : 0;
            if (column + SEGMENT == to.columns)
                for (int block = to.blocks(); block % 4 != 0; block++) *to.scale(row, block) = 0;
        }

        // Of lanes side by side, COUNT columns each; by a whole warp.
        template <int COUNT>
        __device__ __forceinline__ void store_by_warp(const RowOfTile& row, int column, const float (&values)[COUNT]) const {
            constexpr int LANES_OF_BLOCK = BLOCK / COUNT;
            const int lane = threadIdx.x % 32, end = column + (32 - lane) * COUNT;
            float amax = 0;
#pragma unroll
            for (int i = 0; i < COUNT; i++) amax = larger_magnitude(amax, values[i]);
            const uint32_t scale = format.scale_of(__uint_as_float(group_max<LANES_OF_BLOCK>(__float_as_uint(amax))));
            const uint32_t word = format.template encode<COUNT>(values, format.multiplier(scale));
            if (column < to.columns) {
                if (row.there())
                    store_bytes<COUNT / Format::PER_BYTE>(to.q + row.row() * to.stride + column / Format::PER_BYTE, word);
                if (lane % LANES_OF_BLOCK == 0) *to.scale(row, column / BLOCK) = row.there() ? scale : 0;
            }
            const int padding = to.blocks() + lane;
            if (end >= to.columns && padding < (to.blocks() + 3) / 4 * 4) *to.scale(row, padding) = 0;
        }

       private:
        template <int BYTES>
        __device__ __forceinline__ static void store_bytes(uint8_t* target, uint32_t word) {
            if constexpr (BYTES == 1) *target = word;
            if constexpr (BYTES == 2) *reinterpret_cast<uint16_t*>(target) = word;
            if constexpr (BYTES == 4) *reinterpret_cast<uint32_t*>(target) = word;
        }
    };

    __device__ __forceinline__ OfGroup of(int group) const { return {*this, Format(argument, type, group * argument_stride)}; }

   private:
    __device__ __forceinline__ int blocks() const { return columns / BLOCK; }
    __device__ __forceinline__ uint8_t* scale(const RowOfTile& row, int block) const {
        const int tiles = (blocks() + SCALES_A_TILE_ROW - 1) / SCALES_A_TILE_ROW, within = row.index % SCALE_TILE_ROWS;
        return scales + (int64_t(row.row_of_tiles()) * tiles + block / SCALES_A_TILE_ROW) * SCALE_TILE_BYTES + within % 32 * 16 +
               within / 32 * 4 + block % SCALES_A_TILE_ROW;
    }
};

}  // namespace zoo
