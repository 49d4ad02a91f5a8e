// What is made of a product's sums, and where it goes: the end of block_scaled_epilogues.cu and block_scaled_gather_epilogues.cu.
#pragma once

#include <type_traits>

#include "gemm/block_scaled/gated.cuh"
#include "gemm/block_scaled/laid_sums.cuh"
#include "gemm/block_scaled/results.cuh"

namespace zoo {

// RESULT: 0 D, 1 MXFP8, 2 NVFP4.
template <int RESULT>
struct ResultOf {
    using Argument = int64_t;  // nothing
    using Type = Rounded;
};
template <>
struct ResultOf<1> {
    using Argument = ToMxfp8::Argument;
    using Type = Quantised<ToMxfp8>;
};
template <>
struct ResultOf<2> {
    using Argument = ToNvfp4::Argument;
    using Type = Quantised<ToNvfp4>;
};

template <class Result, class Argument>
__device__ __forceinline__ Result result_of(const Finish& finish, uint8_t* scales, int columns, int type, Argument argument,
                                            int argument_stride) {
    if constexpr (std::is_same_v<Result, Rounded>)
        return {finish, columns};
    else
        return {finish.d, finish.d_stride, scales, columns, type, argument, argument_stride};
}

// An order of tiles of the result, or of the products of gates and ups that they are made of.
template <class Order, class Tiles>
__device__ __forceinline__ Order order_of(const Tiles& tiles, bool in_halves) {
    if constexpr (std::is_same_v<Order, Tiles>)
        return tiles;
    else
        return {tiles, tiles.N, !in_halves};
}

template <bool GATED_, class Result>
struct Epilogue {
    static constexpr bool GATED = GATED_;
    const Finish& finish;
    const Gated& gated;
    const Result& result;

    __device__ __forceinline__ Finish::Row row_of(const RowOfTile& row) const {
        return {row.row(), finish.alpha_of(row.work.group), row.there() ? finish.factor_of(row.row()) : 1};
    }

    // Tokens as rows. All of a tile, by the threads that store.
    template <class Tile>
    __device__ __forceinline__ void store(Drain<Tile>& drain, Tile& tile, const ScaledWork& work, int index) const {
        const auto to = result.of(work.group);
        const RowOfTile row{work, index};
        const Finish::Row of = row_of(row);
        const bool ours = index / LANES * LANES < work.rows;  // its 128 rows have any
        if constexpr (GATED) {
            const int end = work.column + work.columns / 2;
            drain.run_pairs(tile, work, gated.interleaved, [&](int pair, float (&sums)[2][SEGMENT]) {
                const int column = work.column + pair * SEGMENT;
                float h[SEGMENT] = {};
                gated.of_segment(sums, of, work.group, column, end, h);
                if (ours) to.store_segment(row, column, h);
            });
        } else {
            const int end = work.column + work.columns;
            drain.run(tile, work, [&](int first, float (&sums)[SEGMENT]) {
                const int column = work.column + first;
#pragma unroll
                for (int i = 0; i < SEGMENT; i += 8)
                    if (column + i < end) finish.add_bias(&sums[i], of, work.group, column + i);
#pragma unroll
                for (int i = 0; i < SEGMENT; i++) sums[i] = __fmul_rn(sums[i], of.factor);
                if (ours) to.store_segment(row, column, sums);
            });
        }
    }

    // Few tokens, after their sums have been laid down. By all warps of all CTAs that share K; `work`: of the result.
    template <class Laid>
    __device__ __forceinline__ void store_laid(const Laid& laid, const ScaledWork& work, int split, int splits) const {
        const auto to = result.of(work.group);
        const int lane = threadIdx.x % 32, end = work.column + work.columns;
        laid.for_tokens(work, to.PADS, split, splits, [&](int token) {
            const RowOfTile row{work, token};
            const Finish::Row of = row_of(row);
            float four[4] = {}, ups[4] = {};
            if (row.there()) {
                laid.collect(0, token, splits, four);
                if (GATED && !gated.interleaved) laid.collect(1, token, splits, ups);
            }
            if (GATED && gated.interleaved) {
                const int column = work.column + 2 * lane;
                float h[2] = {};
#pragma unroll
                for (int i = 0; i < 2; i++)
                    if (column < end) h[i] = gated.of_two(four[2 * i], four[2 * i + 1], of, work.group, column + i);
                to.store_by_warp(row, column, h);
            } else {
                const int column = work.column + 4 * lane;
#pragma unroll
                for (int i = 0; i < 4; i++) {
                    if (column >= end) break;
                    four[i] = GATED ? gated.of_two(four[i], ups[i], of, work.group, column + i)
                                    : finish.finished(four[i], of, work.group, column + i);
                }
                to.store_by_warp(row, column, four);
            }
        });
    }
};

// By all threads: the products of all tiles, and what is made of them.
template <class Tile, class Tiles, class Order, class Copies, class Scales, class Epilogue>
__device__ __forceinline__ void compute(Tile& tile, Tiles tiles, const Order& order, const Copies& copies, const Scales& scales,
                                        uint32_t types, int K, const Epilogue& epilogue, bool asks) {
    const int splits = tiles.share.splits, split = tiles.share.split;
    Product<Tile> product{tile, Tile::CTAS * splits, asks};
    if constexpr (Tile::SWAPPED) {
        LaidSums<Tile>& laid = LaidSums<Tile>::of(tile);
        const int products = Epilogue::GATED && !epilogue.gated.interleaved ? 2 : 1;
        int seen = 0;
        product.run(order, copies, scales, types, K, [&](Drain<Tile>& drain, const ScaledWork& work, int lane) {
            if (++seen < products) return;  // the next product needs the stages
            wait(&tile.ready[products - 1], 0);
#pragma unroll 1
            for (int i = 0; i < products; i++)
                drain.run(tile, work, [&](int first, const auto& sums) { laid.lay_down(work, i, lane, first, sums); });
        });
        product.synchronise();
        ScaledWork work = {};
        if (tiles.at(blockIdx.x / splits, work)) epilogue.store_laid(laid, work, split, splits);
    } else {
        product.run(order, copies, scales, types, K, [&](Drain<Tile>& drain, const ScaledWork& work, int lane) {
            epilogue.store(drain, tile, work, product.rank * LANES + lane);
        });
    }
    product.free();
}

}  // namespace zoo
