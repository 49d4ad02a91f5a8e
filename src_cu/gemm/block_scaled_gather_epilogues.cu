// gemm.{mxfp8,mxfp4,nvfp4,mxfp8_mxfp4}.m_grouped_gather.{swiglu, swiglu_mxfp8, swiglu_nvfp4, mxfp8, nvfp4}: what
// block_scaled_epilogues.cu makes of groups of rows that follow each other, of rows that A is read at through an index, as
// block_scaled_gather.cu reads it. What is made lies in the groups' order, as the next product's contiguous groups have it.

#include "gemm/block_scaled/chosen.cuh"
#include "gemm/block_scaled/epilogue.cuh"
#include "gemm/block_scaled/gather.cuh"

namespace zoo {

using Tile = GatheringTile<TileOf<Variant>>;
constexpr int DYNAMIC_SHARED_BYTES = sizeof(Tile);
constexpr bool GATED = Variant::GATED != 0;

using Argument = ResultOf<Variant::RESULT>::Argument;
using Result = ResultOf<Variant::RESULT>::Type;
using TilesOfResult = ManyMatrices<Tile, RaggedGroups>;
using Order = std::conditional_t<GATED, GatedOrder<Tile, TilesOfResult>, TilesOfResult>;
using RowsOfB = std::conditional_t<GATED && !Tile::SWAPPED, RowsOfBoxesApart, RowsOfOneBox>;

}  // namespace zoo

// rows: of A. N: columns of the result, of which a tile has `weights`. box: rows of B that one copy brings.
extern "C" __global__ void __launch_bounds__(zoo::THREADS_OF_ROLES, 1)
    ZOO_KERNEL(const __grid_constant__ zoo::TensorMap a, const __grid_constant__ zoo::TensorMap b,
               const __grid_constant__ zoo::TensorMap b_scale_map, const uint8_t* a_scale, int64_t a_scale_stride,
               const uint8_t* b_scale, const int* index, const int* offsets, int count, int rows, int N, int K, int types,
               int weights, int box, int asks, uint8_t* d, int64_t d_stride, int type, const float* alpha, int alpha_stride,
               const uint8_t* bias, int bias_is_bf16, const float* row_scale, int activation, float limit, int interleaved,
               uint8_t* scales_out, zoo::Argument argument, int argument_stride) {
    using namespace zoo;
    using Kind = Tile::Kind;
    extern __shared__ __align__(1024) uint8_t memory[];
    Tile& tile = *reinterpret_cast<Tile*>(memory);
    const int scales = K / Kind::ELEMENTS_A_SCALE, scale_tiles = tiles_of(scales, SCALES_A_TILE_ROW);
    const bool in_halves = GATED && !interleaved;
    const int rows_of_b = GATED ? 2 * N : N;
    const RowsByIndex by_index{index, rows};
    const RowsOfB rows_of_tile{GATED && !Tile::SWAPPED && in_halves ? N : box};
    const GatheredElements<Tile, RowsOfB> elements{a, b, by_index, rows_of_tile, weight_bytes<Kind>(types)};
    const GatheredScales<Tile> gathered_scales{
        {a_scale, a_scale_stride, scales},
        by_index,
        {b_scale_map, b_scale, scales, scale_tiles, count * tiles_of(rows_of_b, SCALE_TILE_ROWS), 0,
         in_halves ? N / SCALE_TILE_ROWS : 1}};
    const TilesOfResult tiles{RaggedGroups{{offsets}}, count, N, weights, {tiles_of(K, Kind::ELEMENTS_A_LINE), 1, 0}};
    const Finish finish{d,         d_stride,  Stored(type), alpha, alpha_stride, {bias, bias_is_bf16},
                        rows_of_b, row_scale, {nullptr, 0}, 0};
    const Gated gated{finish, {Gate(activation), limit}, N, !in_halves};
    const Result result = result_of<Result>(finish, scales_out, N, type, argument, argument_stride);

    compute(tile, tiles, order_of<Order>(tiles, in_halves), elements, gathered_scales, types, K,
            Epilogue<GATED, Result>{finish, gated, result}, asks != 0);
}
