// SwiGLU with fp8b128: activation(gate) * up from f32 sums, as bf16, or as e4m3 with an f32 scale for 1 x 128, rounded as quantize.fp8b128.rows
// rounds. The launch chooses the result. Kernels of fp8b128 with SwiGLU include it.
//
// A scale needs the largest of 128 columns. Tokens as rows: a thread makes h of 32 columns at a time, and stores h in tensor memory, where
// its sums were. When it has made all 128 columns, it knows the scale, and loads h again. The next tile overwrites some sums. The thread reads
// them first, and stores no h there:
//
//     first sums, last column first        g0 g1 g2 g3 u0 u1 u2 u3       in halves       g0 u0 g1 u1 g2 u2 g3 u3    interleaved
//     h                                    h0 h1 h2 h3          --                       h0    h1    h2    h3 --
//     second sums, first column first      g0 g1 g2 g3 u0 u1 u2 u3                       g0 u0 g1 u1 g2 u2 g3 u3
//     h                                    --          h0 h1 h2 h3                       -- h0    h1    h2    h3
//
// SWAPPED: sums go through shared memory (epilogue/shared_sums.cuh), and a warp has a token's 128 columns, four a lane.
#pragma once

#include "common/formats/fp8b128.cuh"
#include "common/magnitude.cuh"
#include "common/warp.cuh"
#include "gemm/blackwell/epilogue/shared_sums.cuh"
#include "gemm/blackwell/fp8b128/gated_tiles.cuh"
#include "gemm/blackwell/gated/gates_and_ups.cuh"

namespace zoo {

// bf16, or e4m3 and scales.
struct Fp8b128Result {
    uint8_t* d;
    int64_t stride;  // in elements
    int columns;
    bool quantises;
    float* scales;
    int64_t scales_group, scales_row, scales_block;
    int slot_rows;  // 0: groups are contiguous
    ChosenFp8b128 format;

    __device__ __forceinline__ void store_scale(int group, int row, int column, uint32_t scale) const {
        scales[group * scales_group + (row - group * slot_rows) * scales_row + column / RESULT_BLOCK * scales_block] =
            __uint_as_float(scale);
    }

    // Stores 32 columns of a row, of which a multiple of 8 exist; if they are quantised, a multiple of 16.
    __device__ __forceinline__ void store_rounded(int row, int column, const float (&h)[SEGMENT]) const {
        uint32_t words[SEGMENT / 2];
#pragma unroll
        for (int w = 0; w < SEGMENT / 2; w++) words[w] = encode_two<bf16>(h[2 * w], h[2 * w + 1]);
        store_sectors(d + (row * stride + column) * 2, words, (columns - column) * 2);
    }
    __device__ __forceinline__ void store_quantised(int row, int column, const float (&h)[SEGMENT], float multiplier) const {
        uint32_t words[SEGMENT / 4];
#pragma unroll
        for (int w = 0; w < SEGMENT / 4; w++) words[w] = encode_four_fp8<e4m3>(&h[4 * w], multiplier);
        store_sectors(d + row * stride + column, words, columns - column);
    }

    __device__ __forceinline__ void store_two(int row, int column, float first, float second, float multiplier) const {
        const int64_t at = row * stride + column;
        if (quantises)
            *reinterpret_cast<uint16_t*>(d + at) = Fp8<e4m3>::encode(first * multiplier, second * multiplier);
        else
            *reinterpret_cast<uint32_t*>(d + at * 2) = encode_two<bf16>(first, second);
    }
};

struct Fp8b128GatedEpilogue {
    static constexpr bool GATED = true, INTERLEAVED_HAS_TWO = true;
    const Fp8b128Result& to;
    const float* row_scale;
    GatedActivation gated;

    // Tokens as rows: by the epilogue warps. `index` is the thread's row of the tile.
    template <class Tile>
    __device__ __forceinline__ void store(SumsReader<Tile>& reader, Tile& tile, const TileWork& work, int index) const {
        const bool exists = index < work.rows, second = reader.tiles % 2 != 0, interleaved = gated.interleaved;
        const int row = work.row + index;
        const Finish::Row factors{row, 1, exists ? scale_of(row) : 1};
        const uint32_t kept = tile.tensor_memory + (second ? Tile::SECOND_SUMS : 0) + ((threadIdx.x / 32 % 4) * 32 << 16) +
                              (!second       ? 0
                               : interleaved ? SEGMENT
                                             : RESULT_BLOCK);   // where h is
        const int apart = interleaved ? 2 * SEGMENT : SEGMENT;  // in columns of tensor memory
        float amax = 0;
        reader.read_two_chunks(tile, work, interleaved, [&](int i, float (&sums)[2][SEGMENT]) {
            const int column = work.column + i * SEGMENT;
            float h[SEGMENT] = {};
            if (exists) gated.h_of_segment(sums, factors, work.group, column, to.columns, h);
            if (to.quantises) {
#pragma unroll
                for (int j = 0; j < SEGMENT; j++) amax = larger_magnitude(amax, h[j]);
                store_32_columns(kept + i * apart, h);
                wait_for_stores();  // they read h's registers
            } else if (exists) {
                to.store_rounded(row, column, h);
            }
        });
        if (!to.quantises) return;
        const uint32_t scale = to.format.scale_of(amax);
        const float multiplier = to.format.multiplier(scale);
        if (exists) to.store_scale(work.group, row, work.column, scale);
#pragma unroll 1
        for (int i = 0; work.column + i * SEGMENT < to.columns && i < RESULT_BLOCK / SEGMENT; i++) {
            float h[SEGMENT];
            load_32_columns(h, kept + i * apart);
            wait_for_loads();
            if (exists) to.store_quantised(row, work.column + i * SEGMENT, h, multiplier);
        }
    }

    // SWAPPED: by all warps of all CTAs that split K, when their sums are in shared memory. `work` is a tile of the result. A lane has two
    // times two neighbouring columns.
    template <class Shared>
    __device__ __forceinline__ void store_shared(const Shared& shared, const TileWork& work, int split, int splits) const {
        const int lane = threadIdx.x % 32;
        shared.for_each_token(work, false, split, splits, [&](int token) {
            const int row = work.row + token;
            const Finish::Row factors{row, 1, scale_of(row)};
            const bool interleaved = gated.interleaved;
            float one[4], other[4], h[4], amax = 0;
            shared.add_up(0, token, splits, one);
            shared.add_up(1, token, splits, other);
            const int first = work.column + (interleaved ? 2 : 4) * lane, step = interleaved ? RESULT_BLOCK / 2 : 2;
#pragma unroll
            for (int i = 0; i < 4; i++) {
                const float gate = !interleaved ? one[i] : i < 2 ? one[2 * i] : other[2 * i - 4];
                const float up = !interleaved ? other[i] : i < 2 ? one[2 * i + 1] : other[2 * i - 3];
                const int column = first + i / 2 * step + i % 2;
                h[i] = column < to.columns ? gated.h(gate, up, factors, work.group, column) : 0;
                amax = larger_magnitude(amax, h[i]);
            }
            const uint32_t scale = to.format.scale_of(__uint_as_float(group_max<32>(__float_as_uint(amax))));
            const float multiplier = to.format.multiplier(scale);
            if (to.quantises && lane == 0) to.store_scale(work.group, row, work.column, scale);
#pragma unroll
            for (int i = 0; i < 2; i++)
                if (first + i * step < to.columns) to.store_two(row, first + i * step, h[2 * i], h[2 * i + 1], multiplier);
        });
    }

   private:
    __device__ __forceinline__ float scale_of(int row) const { return row_scale == nullptr ? 1 : row_scale[row]; }
};

}  // namespace zoo
