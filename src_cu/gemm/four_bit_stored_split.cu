// gemm.fp8_nvfp4.dense.stored and gemm.fp8_mxfp4.dense.stored of few rows: as four_bit_stored.cu, one matrix, whose K the CTAs of a cluster
// share. Each begins in the middle of a row of codes and of its scales (four_bit/stored.cuh); sums meet as those of packed weights
// (epilogue/pushed_sums.cuh).

#include "gemm/four_bit/product.cuh"

namespace zoo {

using Tile = FourBitTile<Weights(Variant::FORMAT), Variant::TOKENS, 1, 2, Variant::STAGES, 4, false, false, Promotion::of_blocks,
                         Laid::stored, false>;
using Order = SplitOrder<Tile, Variant::SPLITS>;
using Way = FourBitProduct<Tile, Order, Variant::SPLITS>;
constexpr int DYNAMIC_SHARED_BYTES = sizeof(Way);

}  // namespace zoo

// rows: of A and D; chunks: 64 of K each; scales: of a row of B, b_scale_row bytes apart.
extern "C" __global__ void __launch_bounds__(zoo::Tile::THREADS, Variant::CTAS)
    ZOO_KERNEL(const __grid_constant__ zoo::TensorMap a, const __grid_constant__ zoo::TensorMap b, const uint8_t* b_scale,
               int64_t b_scale_row, uint8_t* d, int64_t d_stride, int d_kind, int rows, int box_rows, int scales_a_row, int N,
               int tiles, int chunks, const float* a_scale, const float* alpha, const uint8_t* largest, const uint8_t* bias,
               int bias_is_bf16, const float* row_scale) {
    extern __shared__ __align__(1024) uint8_t memory[];
    const zoo::StoredScales<> scales{b_scale, 0, b_scale_row, N, scales_a_row, largest};
    const zoo::StoredOperands<zoo::Tile> operands{{a, {nullptr, tiles, chunks}, box_rows, {}}, b, scales};
    const zoo::FourBitResult<zoo::Tile::FORMAT> result{d,    d_stride, d_kind,  N,    a_scale,           nullptr,
                                                       rows, alpha,    largest, bias, bias_is_bf16 != 0, row_scale};
    const auto order = [&] { return zoo::Order(rows, N, zoo::tiles_of(chunks, zoo::PROMOTED_CHUNKS)); };
    reinterpret_cast<zoo::Way*>(memory)->run(order, operands, {}, result);
}
