// gemm.{mxfp8,mxfp4,nvfp4}.{dense, m_grouped_contiguous, m_grouped_masked}.{swiglu, swiglu_mxfp8, swiglu_nvfp4, mxfp8, nvfp4}: products
// of which more is made than D, straight from the f32 sums:
//
//     sums -> times alpha -> plus bias -> silu(gate) * up or what others make of both -> times the row's factor -> D
//                                      \______________ where B is gates and ups _____/                         \-> elements and scales
//
// each rounded to f32, then once more to D, or to elements as quantize.{mxfp8,nvfp4}.rows would round them. Roles, rings and tiles are
// those of block_scaled_dense.cu, groups those of block_scaled_groups.cu. Besides:
//
//     activation.cuh     h of a gate and its up
//     gated.cuh          which rows of B are gates and ups of a tile
//     results.cuh        D, or elements and scales
//     laid_sums.cuh      few tokens: a token's weights side by side
//
// Tokens as rows: a thread has 32 neighbouring columns of a row of the result, a block of MXFP8 or two of NVFP4, in registers.

#include "gemm/block_scaled/chosen.cuh"
#include "gemm/block_scaled/gated.cuh"
#include "gemm/block_scaled/laid_sums.cuh"
#include "gemm/block_scaled/results.cuh"

namespace zoo {

using Tile = TileOf<Variant>;
constexpr int DYNAMIC_SHARED_BYTES = sizeof(Tile);
constexpr bool GATED = Variant::GATED != 0;

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
using Argument = ResultOf<Variant::RESULT>::Argument;
using Result = ResultOf<Variant::RESULT>::Type;

// GROUPING: 0 one matrix, 1 m_grouped_contiguous, 2 m_grouped_masked.
using Groups = std::conditional_t<Variant::GROUPING == 2, GroupsInPlaces, RaggedGroups>;
using TilesOfResult = std::conditional_t<Variant::GROUPING == 0, OneMatrix<Tile>, ManyMatrices<Tile, Groups>>;
using Order = std::conditional_t<GATED, GatedOrder<Tile, TilesOfResult>, TilesOfResult>;
using Copies = std::conditional_t<GATED && !Tile::SWAPPED, GatedElements<Tile>, Elements<Tile>>;

// What is made of sums, and where it goes.
struct Epilogue {
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

template <class T = TilesOfResult>
__device__ __forceinline__ T tiles_of_result(const int* groups, int count, int rows, int columns, int weights,
                                             ShareOfLines share) {
    if constexpr (Variant::GROUPING == 0)
        return T{rows, columns, weights, share};
    else
        return T{Groups::of(groups, rows), count, columns, weights, share};
}

// `up_rows`: from gates in halves to their ups; `right_box`: rows of one copy.
template <class T = Order>
__device__ __forceinline__ T order_of(const TilesOfResult& tiles, bool in_halves) {
    if constexpr (GATED)
        return T{tiles, tiles.N, !in_halves};
    else
        return tiles;
}
template <class T = Copies>
__device__ __forceinline__ T copies_of(const TensorMap& a, const TensorMap& b, int up_rows, int right_box, uint32_t types) {
    return T{a, b, GATED && !Tile::SWAPPED ? up_rows : right_box, weight_bytes<Tile::Kind>(types)};
}
template <class T = Result>
__device__ __forceinline__ T result_of(const Finish& finish, uint8_t* scales, int columns, int type, Argument argument,
                                       int argument_stride) {
    if constexpr (Variant::RESULT == 0)
        return T{finish, columns};
    else
        return T{finish.d, finish.d_stride, scales, columns, type, argument, argument_stride};
}

template <class Tile>
__device__ __forceinline__ void compute(Tile& tile, TilesOfResult tiles, const Order& order, const Copies& copies,
                                        const ScalesOfBoth<Tile>& scales, uint32_t types, int K, const Epilogue& epilogue,
                                        bool asks) {
    const int splits = tiles.share.splits, split = tiles.share.split;
    Product<Tile> product{tile, Tile::CTAS * splits, asks};
    if constexpr (Tile::SWAPPED) {
        LaidSums<Tile>& laid = LaidSums<Tile>::of(tile);
        const int products = GATED && !epilogue.gated.interleaved ? 2 : 1;
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

// rows: of A, or of a place; scale_rows: tiles of A's scales, one below the other. N: columns of the result, of which a tile has
// `weights`. right_box: rows of B, or of A where tokens are few, that one copy brings.
extern "C" __global__ void __launch_bounds__(zoo::THREADS_OF_ROLES, 1)
    ZOO_KERNEL(const __grid_constant__ zoo::TensorMap a, const __grid_constant__ zoo::TensorMap b,
               const __grid_constant__ zoo::TensorMap a_scale_map, const __grid_constant__ zoo::TensorMap b_scale_map,
               const uint8_t* a_scale, const uint8_t* b_scale, const int* groups, int count, int rows, int scale_rows, int N,
               int K, int types, int weights, int right_box, int splits, int asks, uint8_t* d, int64_t d_stride, int type,
               const float* alpha, int alpha_stride, const uint8_t* bias, int bias_is_bf16, const float* row_scale,
               int activation, float limit, int interleaved, uint8_t* scales_out, zoo::Argument argument, int argument_stride) {
    using namespace zoo;
    using Kind = Tile::Kind;
    extern __shared__ __align__(1024) uint8_t memory[];
    Tile& tile = *reinterpret_cast<Tile*>(memory);
    const int scales = K / Kind::ELEMENTS_A_SCALE, scale_tiles = tiles_of(scales, SCALES_A_TILE_ROW);
    const bool in_halves = GATED && !interleaved;
    const int rows_of_b = GATED ? 2 * N : N;
    const ShareOfLines share{tiles_of(K, Kind::ELEMENTS_A_LINE), splits, splits > 1 ? int(cluster_rank()) : 0};
    const TilesOfResult tiles = tiles_of_result(groups, count, rows, N, weights, share);
    const ScalesOfBoth<Tile> scales_of_both{
        {a_scale_map, a_scale, scales, scale_tiles, scale_rows},
        {b_scale_map, b_scale, scales, scale_tiles, count * tiles_of(rows_of_b, SCALE_TILE_ROWS), 0,
         in_halves ? N / SCALE_TILE_ROWS : 1}};
    const Finish finish{d,         d_stride,  Stored(type), alpha, alpha_stride, {bias, bias_is_bf16},
                        rows_of_b, row_scale, {nullptr, 0}, 0};
    const Gated gated{finish, {Gate(activation), limit}, N, !in_halves};
    const Result result = result_of(finish, scales_out, N, type, argument, argument_stride);

    compute(tile, tiles, order_of(tiles, in_halves), copies_of(a, b, in_halves ? N : 0, right_box, types), scales_of_both, types,
            K, {finish, gated, result}, asks != 0);
}
