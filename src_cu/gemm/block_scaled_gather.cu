// gemm.{mxfp8,mxfp4,nvfp4,mxfp8_mxfp4}.m_grouped_gather: groups of rows of D, each with a B of its own; row i of D takes row index[i]
// of A, so that tokens need not be permuted, nor copied for each of their experts. As block_scaled_dense.cu, but that ManyMatrices
// (order.cuh) says where tiles lie, that A and its scales come through the index (gather.cuh), and that nobody shares K.

#include "gemm/block_scaled/chosen.cuh"
#include "gemm/block_scaled/gather.cuh"
#include "gemm/block_scaled/order.cuh"

namespace zoo {

using Tile = GatheringTile<TileOf<Variant>>;
constexpr int DYNAMIC_SHARED_BYTES = sizeof(Tile);

}  // namespace zoo

// rows: of A.
extern "C" __global__ void __launch_bounds__(zoo::THREADS_OF_ROLES, 1)
    ZOO_KERNEL(const __grid_constant__ zoo::TensorMap a, const __grid_constant__ zoo::TensorMap b,
               const __grid_constant__ zoo::TensorMap b_scale_map, const uint8_t* a_scale, int64_t a_scale_stride,
               const uint8_t* b_scale, const int* index, const int* offsets, int count, int rows, int N, int K, int types,
               int weights, int asks, uint8_t* d, int64_t d_stride, int dtype, const float* alpha, int alpha_stride,
               const uint8_t* bias, int bias_is_bf16, const float* row_scale) {
    using namespace zoo;
    using Kind = Tile::Kind;
    extern __shared__ __align__(1024) uint8_t memory[];
    Tile& tile = *reinterpret_cast<Tile*>(memory);
    const int scales = K / Kind::ELEMENTS_A_SCALE, tiles = tiles_of(scales, SCALES_A_TILE_ROW);
    const RowsByIndex by_index{index, rows};
    const GatheredElements<Tile> elements{a, b, by_index, {weights}, weight_bytes<Kind>(types)};
    const GatheredScales<Tile> gathered_scales{
        {a_scale, a_scale_stride, scales}, by_index, {b_scale_map, b_scale, scales, tiles, count * tiles_of(N, SCALE_TILE_ROWS)}};
    const Finish finish{d, d_stride, Stored(dtype), alpha, alpha_stride, {bias, bias_is_bf16}, N, row_scale, {nullptr, 0}, 0};
    const ShareOfLines share{tiles_of(K, Kind::ELEMENTS_A_LINE), 1, 0};
    const ManyMatrices<Tile, RaggedGroups> order{RaggedGroups{{offsets}}, count, N, weights, share};
    Product<Tile> product{tile, Tile::CTAS, asks != 0};

    product.run(order, elements, gathered_scales, types, K, [&](Drain<Tile>& drain, const ScaledWork& work, int lane) {
        drain.run(tile, work, [&](int first, auto& sums) { store_chunk<Tile>(finish, work, lane, first, sums); });
    });
    product.free();
}
