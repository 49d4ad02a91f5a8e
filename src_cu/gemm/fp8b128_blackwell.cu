// gemm.fp8b128.dense on Blackwell: D = A B^T as block_scaled_dense.cu computes it, with scales that a warp turns into ue8m0 and into the
// tiles that tensor memory takes (scales_by_hand.cuh). A scale of 128 elements is that of four steps of 32.

#include "gemm/block_scaled/chosen.cuh"
#include "gemm/block_scaled/order.cuh"
#include "gemm/block_scaled/scales_by_hand.cuh"
#include "gemm/block_scaled/to_d.cuh"

namespace zoo {

using Tile = TileOf<Variant>;
constexpr int DYNAMIC_SHARED_BYTES = sizeof(Tile);

}  // namespace zoo

extern "C" __global__ void __launch_bounds__(zoo::THREADS_OF_ROLES, 1)
    ZOO_KERNEL(const __grid_constant__ zoo::TensorMap a, const __grid_constant__ zoo::TensorMap b, const uint8_t* a_scale,
               const uint8_t* b_scale, int a_scale_is_ue8m0, int b_scale_is_ue8m0, int64_t a_scale_row, int64_t a_scale_block,
               int64_t b_scale_row, int64_t b_scale_block, int M, int N, int K, int weights, int right_box, int splits, int asks,
               uint8_t* d, int64_t d_stride, int dtype, const float* row_scale, const uint8_t* c, int c_is_bf16,
               int64_t c_stride) {
    using namespace zoo;
    extern __shared__ __align__(1024) uint8_t memory[];
    Tile& tile = *reinterpret_cast<Tile*>(memory);
    const int split = splits > 1 ? cluster_rank() : 0;
    const OneMatrix<Tile> order{M, N, weights, {tiles_of(K, Tile::Kind::ELEMENTS_A_LINE), splits, split}};
    const Elements<Tile> elements{a, b, right_box};
    const ScalesByHand<Tile, RowsAsTheyLie> scales{{a_scale, a_scale_is_ue8m0, 0, a_scale_row, a_scale_block},
                                                   {b_scale, b_scale_is_ue8m0, 0, b_scale_row, b_scale_block},
                                                   RowsAsTheyLie(0)};
    const Finish finish{d, d_stride, Stored(dtype), nullptr, 0, {nullptr, 0}, 0, row_scale, {c, c_is_bf16}, c_stride};

    constexpr uint32_t TYPES = TYPE_E4M3 << 7 | TYPE_E4M3 << 10;
    compute(tile, order, elements, scales, TYPES, K, finish, asks != 0);
}
