// gemm.{mxfp8,mxfp4,nvfp4,mxfp8_mxfp4}.{dense, m_grouped_contiguous, m_grouped_masked}.{swiglu, swiglu_mxfp8, swiglu_nvfp4, mxfp8, nvfp4}: products
// of which more is made than D, straight from the f32 sums:
//
//     sums -> times alpha -> plus bias -> silu(gate) * up or what others make of both -> times the row's factor -> D
//                                      \______________ where B is gates and ups _____/                         \-> elements and scales
//
// each rounded to f32, then once more to D, or to elements as quantize.{mxfp8,nvfp4}.rows would round them. Roles, rings and tiles are
// those of block_scaled_dense.cu, groups those of block_scaled_groups.cu. Besides:
//
//     epilogue.cuh       what is made of sums, and where it goes
//     activation.cuh     h of a gate and its up
//     gated.cuh          which rows of B are gates and ups of a tile
//     results.cuh        D, or elements and scales
//     laid_sums.cuh      few tokens: a token's weights side by side
//
// Tokens as rows: a thread has 32 neighbouring columns of a row of the result, a block of MXFP8 or two of NVFP4, in registers.

#include "gemm/block_scaled/chosen.cuh"
#include "gemm/block_scaled/epilogue.cuh"

namespace zoo {

using Tile = TileOf<Variant>;
constexpr int DYNAMIC_SHARED_BYTES = sizeof(Tile);
constexpr bool GATED = Variant::GATED != 0;

using Argument = ResultOf<Variant::RESULT>::Argument;
using Result = ResultOf<Variant::RESULT>::Type;

// GROUPING: 0 one matrix, 1 m_grouped_contiguous, 2 m_grouped_masked.
using Groups = std::conditional_t<Variant::GROUPING == 2, GroupsInPlaces, RaggedGroups>;
using TilesOfResult = std::conditional_t<Variant::GROUPING == 0, OneMatrix<Tile>, ManyMatrices<Tile, Groups>>;
using Order = std::conditional_t<GATED, GatedOrder<Tile, TilesOfResult>, TilesOfResult>;
using Copies = std::conditional_t<GATED && !Tile::SWAPPED, GatedElements<Tile>, Elements<Tile>>;

template <class T = TilesOfResult>
__device__ __forceinline__ T tiles_of_result(const int* groups, int count, int rows, int columns, int weights,
                                             ShareOfLines share) {
    if constexpr (Variant::GROUPING == 0)
        return T{rows, columns, weights, share};
    else
        return T{Groups::of(groups, rows), count, columns, weights, share};
}

// `up_rows`: from gates in halves to their ups; `right_box`: rows of one copy.
template <class T = Copies>
__device__ __forceinline__ T copies_of(const TensorMap& a, const TensorMap& b, int up_rows, int right_box, uint32_t types) {
    return T{a, b, GATED && !Tile::SWAPPED ? up_rows : right_box, weight_bytes<Tile::Kind>(types)};
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
    const Result result = result_of<Result>(finish, scales_out, N, type, argument, argument_stride);

    compute(tile, tiles, order_of<Order>(tiles, in_halves), copies_of(a, b, in_halves ? N : 0, right_box, types), scales_of_both,
            types, K, Epilogue<GATED, Result>{finish, gated, result}, asks != 0);
}
