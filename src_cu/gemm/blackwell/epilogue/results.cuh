// Where results go: D, or elements and blocked scales that the next product reads as an operand. epilogue.cuh includes it.
//
// A thread gives 32 neighbouring columns of a row, or the lanes of a warp give a few columns each of one row.
//
// A tile of D writes the scale tiles of its 128 rows, with zeros for rows that are padding. The last columns' tile also writes zeros for
// scale blocks up to a multiple of four.
#pragma once

#include "common/e2m1.cuh"
#include "common/e8m0.cuh"
#include "common/fp8.cuh"
#include "common/magnitude.cuh"
#include "common/warp.cuh"
#include "gemm/blackwell/epilogue/finish.cuh"
#include "gemm/blackwell/schedule/tiles.cuh"

namespace zoo {

struct TileRow {
    const TileWork& work;
    int index;  // in the tile

    __device__ __forceinline__ bool exists() const { return index < work.rows; }  // else it is padding
    __device__ __forceinline__ int row() const { return work.row + index; }
    __device__ __forceinline__ int scale_tile_row() const { return work.token_scales + index / SCALE_TILE_ROWS; }
};

// D, in bf16, f16 or f32.
struct RoundedResult {
    static constexpr bool PADS = false;
    const Finish& finish;
    int columns;  // of D

    __device__ __forceinline__ RoundedResult for_group(int) const { return *this; }

    __device__ __forceinline__ void store_segment(const TileRow& row, int column, const float (&values)[SEGMENT]) const {
        if (row.exists()) finish.store_columns(values, row.row(), column, columns - column);
    }

    template <int COUNT>
    __device__ __forceinline__ void store_by_warp(const TileRow& row, int column, const float (&values)[COUNT]) const {
        if (!row.exists() || column >= columns) return;
#pragma unroll
        for (int i = 0; i < COUNT; i++) finish.store_one(values[i], row.row(), column + i);
    }
};

enum class Fp8Type { e4m3, e5m2 };

// e4m3 or e5m2. Both rules for scales are the same computation with other numbers.
struct Mxfp8Result {
    static constexpr int BLOCK = 32, PER_BYTE = 1, PER_WORD = 4;
    struct Argument {
        int64_t rceil;
    };
    E8m0Rule<Fp8<e4m3>> rule;
    bool is_e5m2;

    __device__ __forceinline__ Mxfp8Result(Argument argument, int type, int)
        : rule(argument.rceil != 0), is_e5m2(Fp8Type(type) != Fp8Type::e4m3) {
        if (is_e5m2) rule.factor = E8m0Rule<Fp8<e5m2>>(argument.rceil != 0).factor;
    }

    __device__ __forceinline__ uint32_t scale_of(float amax) const { return rule.scale_of(amax); }
    __device__ __forceinline__ float multiplier(uint32_t scale) const { return e8m0_inverse(scale); }

    // At most four elements, the first in the lowest byte.
    template <int COUNT>
    __device__ __forceinline__ uint32_t encode(const float* values, float multiplier) const {
        uint32_t word = 0;
#pragma unroll
        for (int i = 0; i < COUNT; i += 2) {
            const float first = values[i] * multiplier, second = values[i + 1] * multiplier;
            const uint32_t two = is_e5m2 ? Fp8<e5m2>::encode(first, second) : Fp8<e4m3>::encode(first, second);
            word |= two << 8 * i;
        }
        return word;
    }
};

// e2m1. It divides without the shortcuts of common/formats/nvfp4.cuh, since 16 elements need only three divisions.
struct Nvfp4Result {
    static constexpr int BLOCK = 16, PER_BYTE = 2, PER_WORD = 8;
    struct Argument {
        const float* tensor_scale;
    };
    float tensor_scale, inverse;

    __device__ __forceinline__ Nvfp4Result(Argument argument, int, int index)
        : tensor_scale(argument.tensor_scale[index]), inverse(__frcp_rn(tensor_scale)) {}

    __device__ __forceinline__ uint32_t scale_of(float amax) const {
        float raised;  // at least the smallest normal e4m3
        asm("max.NaN.f32 %0, %1, %2;" : "=f"(raised) : "f"(__fdiv_rn(__fdiv_rn(amax, E2m1::MAX), tensor_scale)), "f"(0x1p-6f));
        return Fp8<e4m3>::encode(raised, 0.0f) & 0xFF;
    }
    __device__ __forceinline__ float multiplier(uint32_t scale) const { return __fdiv_rn(inverse, Fp8<e4m3>::decode(scale)); }

    template <int COUNT>
    __device__ __forceinline__ uint32_t encode(const float* values, float multiplier) const {
        return e2m1_encode<COUNT>(values, multiplier);
    }
};

// Elements, in rows `stride` bytes apart, and their blocked scales. `columns` is a multiple of 32.
template <class Format_>
struct QuantisedResult {
    using Format = Format_;
    static constexpr int BLOCK = Format::BLOCK;
    uint8_t* q;
    int64_t stride;
    uint8_t* scales;
    int columns, type;
    typename Format::Argument argument;
    int argument_stride;  // from group to group

    struct ForGroup {
        static constexpr bool PADS = true;
        const QuantisedResult& to;
        Format format;

        __device__ __forceinline__ void store_segment(const TileRow& row, int column, const float (&values)[SEGMENT]) const {
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
            if (row.exists()) store_sectors(to.q + row.row() * to.stride + column / Format::PER_BYTE, words, sizeof(words));
#pragma unroll
            for (int b = 0; b < SEGMENT / BLOCK; b++)
                *to.scale(row, column / BLOCK + b) = row.exists() ? scale_bytes >> 8 * b : 0;
            if (column + SEGMENT == to.columns)
                for (int block = to.blocks(); block % 4 != 0; block++) *to.scale(row, block) = 0;
        }

        // A whole warp calls this. Neighbouring lanes have COUNT columns each.
        template <int COUNT>
        __device__ __forceinline__ void store_by_warp(const TileRow& row, int column, const float (&values)[COUNT]) const {
            constexpr int BLOCK_LANES = BLOCK / COUNT;
            const int lane = threadIdx.x % 32, end = column + (32 - lane) * COUNT;
            float amax = 0;
#pragma unroll
            for (int i = 0; i < COUNT; i++) amax = larger_magnitude(amax, values[i]);
            const uint32_t scale = format.scale_of(__uint_as_float(group_max<BLOCK_LANES>(__float_as_uint(amax))));
            const uint32_t word = format.template encode<COUNT>(values, format.multiplier(scale));
            if (column < to.columns) {
                if (row.exists())
                    store_bytes<COUNT / Format::PER_BYTE>(to.q + row.row() * to.stride + column / Format::PER_BYTE, word);
                if (lane % BLOCK_LANES == 0) *to.scale(row, column / BLOCK) = row.exists() ? scale : 0;
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

    __device__ __forceinline__ ForGroup for_group(int group) const {
        return {*this, Format(argument, type, group * argument_stride)};
    }

   private:
    __device__ __forceinline__ int blocks() const { return columns / BLOCK; }
    __device__ __forceinline__ uint8_t* scale(const TileRow& row, int block) const {
        const int tiles = (blocks() + SCALE_TILE_COLUMNS - 1) / SCALE_TILE_COLUMNS, within = row.index % SCALE_TILE_ROWS;
        return scales + (int64_t(row.scale_tile_row()) * tiles + block / SCALE_TILE_COLUMNS) * SCALE_TILE_BYTES +
               within % 32 * 16 + within / 32 * 4 + block % SCALE_TILE_COLUMNS;
    }
};

}  // namespace zoo
