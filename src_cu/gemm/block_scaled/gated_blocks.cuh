// silu(A gates^T) * (A ups^T) of weights that have a scale for 128 x 128, straight from the f32 sums, as bf16 or as e4m3 with an f32 scale
// for 1 x 128, as quantize.fp8b128.rows would round it. What the result is, is known when a kernel is launched. A tile of 128 columns of
// the result takes gates and ups as gated_squares.cuh says.
//
// A scale needs the largest of 128 columns. Tokens as rows: a thread makes h of 32 columns at a time and puts them back into tensor memory,
// where their sums were; when it has made all, it knows the scale, and takes them from there again. Of the pairs of 32 sums that h is made
// of, those that the next tile's sums will overwrite are read first, and nothing is put there:
//
//     sums, first, last column first       g0 g1 g2 g3 u0 u1 u2 u3       in halves       g0 u0 g1 u1 g2 u2 g3 u3    interleaved
//     h                                    h0 h1 h2 h3          --                       h0    h1    h2    h3 --
//     sums, second, first column first     g0 g1 g2 g3 u0 u1 u2 u3                       g0 u0 g1 u1 g2 u2 g3 u3
//     h                                    --          h0 h1 h2 h3                       -- h0    h1    h2    h3
//
// Tokens as columns: sums are laid down in shared memory (laid_sums.cuh), and a warp has a token's columns, four a lane.
#pragma once

#include "gemm/block_scaled/activation.cuh"
#include "gemm/block_scaled/gated.cuh"
#include "gemm/block_scaled/gated_squares.cuh"
#include "gemm/block_scaled/laid_sums.cuh"
#include "quantize/fp8b128.cuh"

namespace zoo {

// bf16, or e4m3 and scales.
struct BlocksOfResult {
    uint8_t* d;
    int64_t stride;  // in elements
    int columns;
    bool quantises;
    float* scales;
    int64_t scales_group, scales_row, scales_block;
    int rows;  // of a place, or 0
    bool pow2;

    __device__ __forceinline__ uint32_t scale_of(float amax) const {
        return pow2 ? Fp8b128<Scaling::pow2>::scale_of(amax) : Fp8b128<Scaling::exact>::scale_of(amax);
    }
    // Of a power of two exact, too.
    __device__ __forceinline__ static float multiplier(uint32_t scale) { return __frcp_rn(__uint_as_float(scale)); }

    __device__ __forceinline__ void store_scale(int group, int row, int column, uint32_t scale) const {
        scales[group * scales_group + (row - group * rows) * scales_row + column / BLOCK_OF_RESULT * scales_block] =
            __uint_as_float(scale);
    }

    // 32 columns of a row from `column` on, of which there are eights, or sixteens where they are quantised.
    __device__ __forceinline__ void store_rounded(int row, int column, const float (&h)[SEGMENT]) const {
#pragma unroll
        for (int i = 0; i < SEGMENT; i += 8) {
            const uint32_t words[4] = {encode_pair<bf16>(h[i], h[i + 1]), encode_pair<bf16>(h[i + 2], h[i + 3]),
                                       encode_pair<bf16>(h[i + 4], h[i + 5]), encode_pair<bf16>(h[i + 6], h[i + 7])};
            if (column + i < columns) store_16_bytes(d + (row * stride + column + i) * 2, words);
        }
    }
    __device__ __forceinline__ void store_quantised(int row, int column, const float (&h)[SEGMENT], float multiplier) const {
#pragma unroll
        for (int i = 0; i < SEGMENT; i += 16) {
            uint32_t words[4];
#pragma unroll
            for (int w = 0; w < 4; w++) words[w] = four(&h[i + 4 * w], multiplier);
            if (column + i < columns) store_16_bytes(d + row * stride + column + i, words);
        }
    }

    __device__ __forceinline__ void store_two(int row, int column, float first, float second, float multiplier) const {
        const int64_t at = row * stride + column;
        if (quantises)
            *reinterpret_cast<uint16_t*>(d + at) = Fp8<e4m3>::encode(first * multiplier, second * multiplier);
        else
            *reinterpret_cast<uint32_t*>(d + at * 2) = encode_pair<bf16>(first, second);
    }

   private:
    __device__ __forceinline__ static uint32_t four(const float* values, float multiplier) {
        const uint32_t low = Fp8<e4m3>::encode(values[0] * multiplier, values[1] * multiplier);
        const uint32_t high = Fp8<e4m3>::encode(values[2] * multiplier, values[3] * multiplier);
        return high << 16 | low;
    }
};

// What is made of sums, and where it goes.
struct Epilogue {
    const BlocksOfResult& to;
    const float* row_scale;
    Gated gated;

    __device__ __forceinline__ float factor_of(int row) const { return row_scale == nullptr ? 1 : row_scale[row]; }

    // Tokens as rows. All of a tile, by the threads that store. What is to be quantised waits where its sums were, in columns that the
    // next tile's sums do not share, until its row's largest is known.
    template <class Tile>
    __device__ __forceinline__ void store(Drain<Tile>& drain, Tile& tile, const ScaledWork& work, int index) const {
        const bool there = index < work.rows, second = drain.turn % 2 != 0, interleaved = gated.interleaved;
        const int row = work.row + index;
        const Finish::Row of{row, 1, there ? factor_of(row) : 1};
        const uint32_t waiting = tile.tensor_memory + (second ? Tile::SECOND : 0) + ((threadIdx.x / 32 % 4) * 32 << 16) +
                                 (!second       ? 0
                                  : interleaved ? SEGMENT
                                                : BLOCK_OF_RESULT);
        const int apart = interleaved ? 2 * SEGMENT : SEGMENT;  // in columns of tensor memory
        float amax = 0;
        drain.run_pairs(tile, work, interleaved, [&](int pair, float (&sums)[2][SEGMENT]) {
            const int column = work.column + pair * SEGMENT;
            float h[SEGMENT] = {};
            gated.of_segment(sums, of, work.group, column, to.columns, h);
            if (to.quantises) {
#pragma unroll
                for (int i = 0; i < SEGMENT; i++) amax = larger_magnitude(amax, h[i]);
                store_32_columns(waiting + pair * apart, h);
                wait_for_stores();  // until then h's registers are read
            } else if (there) {
                to.store_rounded(row, column, h);
            }
        });
        if (!to.quantises) return;
        const uint32_t scale = to.scale_of(amax);
        const float multiplier = BlocksOfResult::multiplier(scale);
        if (there) to.store_scale(work.group, row, work.column, scale);
#pragma unroll 1
        for (int i = 0; work.column + i * SEGMENT < to.columns && i < BLOCK_OF_RESULT / SEGMENT; i++) {
            float h[SEGMENT];
            load_32_columns(h, waiting + i * apart);
            wait_for_loads();
            if (there) to.store_quantised(row, work.column + i * SEGMENT, h, multiplier);
        }
    }

    // Few tokens, after their sums have been laid down. By all warps of all CTAs that share K; `work`: of the result. Of its sums a lane
    // has two pairs of columns.
    template <class Laid>
    __device__ __forceinline__ void store_laid(const Laid& laid, const ScaledWork& work, int split, int splits) const {
        const int lane = threadIdx.x % 32;
        laid.for_tokens(work, false, split, splits, [&](int token) {
            const int row = work.row + token;
            const Finish::Row of{row, 1, factor_of(row)};
            const bool interleaved = gated.interleaved;
            float one[4], other[4], h[4], amax = 0;
            laid.collect(0, token, splits, one);
            laid.collect(1, token, splits, other);
            const int first = work.column + (interleaved ? 2 : 4) * lane, step = interleaved ? BLOCK_OF_RESULT / 2 : 2;
#pragma unroll
            for (int i = 0; i < 4; i++) {
                const float gate = !interleaved ? one[i] : i < 2 ? one[2 * i] : other[2 * i - 4];
                const float up = !interleaved ? other[i] : i < 2 ? one[2 * i + 1] : other[2 * i - 3];
                h[i] = first + i / 2 * step < to.columns ? gated.of_two(gate, up, of, work.group, first) : 0;
                amax = larger_magnitude(amax, h[i]);
            }
            const uint32_t scale = to.scale_of(__uint_as_float(group_max<32>(__float_as_uint(amax))));
            const float multiplier = BlocksOfResult::multiplier(scale);
            if (to.quantises && lane == 0) to.store_scale(work.group, row, work.column, scale);
#pragma unroll
            for (int i = 0; i < 2; i++)
                if (first + i * step < to.columns) to.store_two(row, first + i * step, h[2 * i], h[2 * i + 1], multiplier);
        });
    }
};

// By all threads: the products of all tiles, and what is made of them.
template <class Tile, class Order, class Copies, class Scales>
__device__ __forceinline__ void compute(Tile& tile, const Order& order, const Copies& copies, const Scales& scales, int K,
                                        ShareOfLines share, const Epilogue& epilogue, bool asks) {
    constexpr uint32_t TYPES = TYPE_E4M3 << 7 | TYPE_E4M3 << 10;
    Product<Tile> product{tile, Tile::CTAS * share.splits, asks};
    if constexpr (Tile::SWAPPED) {
        LaidSums<Tile>& laid = LaidSums<Tile>::of(tile);
        int seen = 0;
        product.run(order, copies, scales, TYPES, K, [&](Drain<Tile>& drain, const ScaledWork& work, int lane) {
            if (++seen < 2) return;  // the second product needs the stages
            wait(&tile.ready[1], 0);
#pragma unroll 1
            for (int i = 0; i < 2; i++)
                drain.run(tile, work, [&](int first, const auto& sums) { laid.lay_down(work, i, lane, first, sums); });
        });
        product.synchronise();
        ScaledWork work = {};
        auto tiles = order.order;
        if (tiles.at(blockIdx.x / share.splits, work)) epilogue.store_laid(laid, work, share.split, share.splits);
    } else {
        product.run(order, copies, scales, TYPES, K, [&](Drain<Tile>& drain, const ScaledWork& work, int lane) {
            epilogue.store(drain, tile, work, product.rank * LANES + lane);
        });
    }
    product.free();
}

}  // namespace zoo
