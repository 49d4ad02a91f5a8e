// gemm.fp8b128.k_grouped: D of each group = A (M, K) B (N, K)^T over the group's rows of K, each of A and B with a scale for
// 1 x 128. Weight gradients: K counts tokens, and both operands are what quantize.fp8b128.cols.m_grouped_contiguous writes.
//
// As dense with many tokens, but for along_k.cuh, which brings blocks and stores D, and two_scales.cuh, the loop over K.

#include "gemm/pipeline/along_k.cuh"

namespace zoo {

using Tile = TileAlongK<Variant::TOKENS, Variant::WEIGHTS, Variant::STAGES, Variant::WARPGROUPS, Variant::HELD>;
using Staged = StagedPieces<Variant::PIECES, Variant::PIECE_ROWS>;
using Way = AlongK<Tile, Staged>;
constexpr int DYNAMIC_SHARED_BYTES = sizeof(Way);

}  // namespace zoo

extern "C" __global__ void __launch_bounds__(zoo::Tile::THREADS, Variant::CTAS)
    ZOO_KERNEL(const __grid_constant__ zoo::TensorMap a, const __grid_constant__ zoo::TensorMap b,
               const __grid_constant__ zoo::TensorMap a_scale, const __grid_constant__ zoo::TensorMap b_scale,
               const __grid_constant__ zoo::TensorMap d_map, uint8_t* d, const int* offsets, int groups, int M, int N,
               int accumulate, int64_t d_group, int64_t d_stride, const uint8_t* a_scale_bytes, const uint8_t* b_scale_bytes,
               int a_scale_is_ue8m0, int b_scale_is_ue8m0, int64_t a_scale_stride, int64_t b_scale_stride) {
    extern __shared__ __align__(1024) uint8_t memory[];
    const zoo::MatrixOfEachGroup<Variant::d> target{d_map, {d, d_stride, N}, d_group, accumulate != 0};
    const zoo::OperandsAlongK<zoo::Tile> operands{a,
                                                  b,
                                                  a_scale,
                                                  b_scale,
                                                  {a_scale_bytes, 1, a_scale_stride, M, a_scale_is_ue8m0 != 0},
                                                  {b_scale_bytes, 1, b_scale_stride, N, b_scale_is_ue8m0 != 0}};
    const zoo::OrderAlongK<zoo::Tile, Variant::BAND> order(offsets, groups, M, N, accumulate != 0);
    reinterpret_cast<zoo::Way*>(memory)->run(order, operands, target);
    zoo::wait_until_stores_have_read();
}
