// gemm.{mxfp8,mxfp4,nvfp4,mxfp8_mxfp4}.dense: D (M, N) = A (M, K) B (N, K)^T on Blackwell, of which rows of A are called tokens and
// rows of B weights. A reading order:
//
//     kind.cuh       what differs between the formats
//     tile.cuh       a tile: shared memory, tensor memory, barriers
//     product.cuh    the roles, put together
//     order.cuh, turns.cuh      which tile lies where, who takes which
//     load.cuh, multiply.cuh    lines of K to shared memory; the loop over them
//     store.cuh, finish.cuh, split_lines.cuh, to_d.cuh      from sums to D

#include "gemm/block_scaled/chosen.cuh"
#include "gemm/block_scaled/order.cuh"
#include "gemm/block_scaled/to_d.cuh"

namespace zoo {

using Tile = TileOf<Variant>;
constexpr int DYNAMIC_SHARED_BYTES = sizeof(Tile);

}  // namespace zoo

extern "C" __global__ void __launch_bounds__(zoo::THREADS_OF_ROLES, 1)
    ZOO_KERNEL(const __grid_constant__ zoo::TensorMap a, const __grid_constant__ zoo::TensorMap b,
               const __grid_constant__ zoo::TensorMap a_scale_map, const __grid_constant__ zoo::TensorMap b_scale_map,
               const uint8_t* a_scale, const uint8_t* b_scale, int M, int N, int K, int types, int weights, int right_box,
               int splits, int asks, uint8_t* d, int64_t d_stride, int dtype, const float* alpha, const uint8_t* bias,
               int bias_is_bf16, const float* row_scale, const uint8_t* c, int c_is_bf16, int64_t c_stride) {
    using namespace zoo;
    using Kind = Tile::Kind;
    extern __shared__ __align__(1024) uint8_t memory[];
    Tile& tile = *reinterpret_cast<Tile*>(memory);
    const int lines = tiles_of(K, Kind::ELEMENTS_A_LINE), scales = K / Kind::ELEMENTS_A_SCALE,
              tiles = tiles_of(scales, SCALES_A_TILE_ROW);
    const int split = splits > 1 ? cluster_rank() : 0;
    const OneMatrix<Tile> order{M, N, weights, {lines, splits, split}};
    const Elements<Tile> elements{a, b, right_box, weight_bytes<Kind>(types)};
    const ScalesOfBoth<Tile> scales_of_both{{a_scale_map, a_scale, scales, tiles, tiles_of(M, SCALE_TILE_ROWS)},
                                            {b_scale_map, b_scale, scales, tiles, tiles_of(N, SCALE_TILE_ROWS)}};
    const Finish finish{d, d_stride, Stored(dtype), alpha, 0, {bias, bias_is_bf16}, 0, row_scale, {c, c_is_bf16}, c_stride};

    compute(tile, order, elements, scales_of_both, types, K, finish, asks != 0);
}
