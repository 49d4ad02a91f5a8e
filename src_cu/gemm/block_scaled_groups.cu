// gemm.{mxfp8,mxfp4,nvfp4,mxfp8_mxfp4}.{m_grouped_contiguous,m_grouped_masked}: groups of rows of A, each with a B of its own. The
// first back to back, the others in places of the same height, of which a group uses the first rows:
//
//     A, rows    |   group 0    | g 1 |     group 2     | nobody's         | group 0   ~~~~~~ | g 1  ~~~~~~~~~~~ | group 2   ~~~~ |
//     tiles      | 0   | 1   | 2| 3   | 4   | 5   | 6|                     | 0   | 1   |      | 2   |            | 3   | 4   |
//     scales     | 0   | 1   | 2| 3   | 4   | 5   | 6|  of 128 rows        | 0   | 1   | 2    | 3   | 4   | 5    | 6   | 7   | 8   |
//
// How many rows a group has only the device knows: the grid has room for any sizes, and CTAs without a tile end. A tile reads rows
// that are not its group's, too, and leaves their sums.
//
// As block_scaled_dense.cu, but that ManyMatrices (order.cuh) says where tiles lie, and that nobody shares K. With tokens as columns
// the columns of a product are as many as there are rows.

#include "gemm/block_scaled/chosen.cuh"
#include "gemm/block_scaled/order.cuh"

namespace zoo {

using Tile = TileOf<Variant>;
constexpr int DYNAMIC_SHARED_BYTES = sizeof(Tile);

using Groups = std::conditional_t<Variant::IN_PLACES, GroupsInPlaces, RaggedGroups>;

}  // namespace zoo

// rows: of a place; with ragged groups no more than there are in all. scale_rows: tiles of A's scales, one below the other.
extern "C" __global__ void __launch_bounds__(zoo::THREADS_OF_ROLES, 1)
    ZOO_KERNEL(const __grid_constant__ zoo::TensorMap a, const __grid_constant__ zoo::TensorMap b,
               const __grid_constant__ zoo::TensorMap a_scale_map, const __grid_constant__ zoo::TensorMap b_scale_map,
               const uint8_t* a_scale, const uint8_t* b_scale, const int* groups, int count, int rows, int scale_rows, int N,
               int K, int types, int weights, int right_box, int asks, uint8_t* d, int64_t d_stride, int dtype,
               const float* alpha, int alpha_stride, const uint8_t* bias, int bias_is_bf16, const float* row_scale) {
    using namespace zoo;
    using Kind = Tile::Kind;
    extern __shared__ __align__(1024) uint8_t memory[];
    Tile& tile = *reinterpret_cast<Tile*>(memory);
    const int scales = K / Kind::ELEMENTS_A_SCALE, tiles = tiles_of(scales, SCALES_A_TILE_ROW);
    const ShareOfLines share{tiles_of(K, Kind::ELEMENTS_A_LINE), 1, 0};
    const ScalesOfBoth<Tile> scales_of_both{{a_scale_map, a_scale, scales, tiles, scale_rows},
                                            {b_scale_map, b_scale, scales, tiles, count * tiles_of(N, SCALE_TILE_ROWS)}};
    const Finish finish{d, d_stride, Stored(dtype), alpha, alpha_stride, {bias, bias_is_bf16}, N, row_scale, {nullptr, 0}, 0};
    Product<Tile> product{tile, Tile::CTAS, asks != 0};

    const auto store = [&](Drain<Tile>& drain, const ScaledWork& work, int lane) {
        drain.run(tile, work,
                  [&](int first, auto& sums) { store_chunk<Tile>(finish, work, product.rank * LANES + lane, first, sums); });
    };
    product.run(ManyMatrices<Tile, Groups>{Groups::of(groups, rows), count, N, weights, share},
                Elements<Tile>{a, b, right_box, weight_bytes<Kind>(types)}, scales_of_both, types, K, store);
    product.free();
}
