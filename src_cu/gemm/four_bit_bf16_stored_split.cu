// gemm.bf16_nvfp4.dense.stored and gemm.bf16_mxfp4.dense.stored of few rows: as four_bit_bf16_stored.cu, one matrix, whose K the CTAs of a
// cluster share. Each begins in the middle of a row of codes and of its scales (four_bit/stored.cuh); sums meet as those of packed weights
// (epilogue/pushed_sums.cuh).

#include "gemm/four_bit/bf16_product.cuh"

namespace zoo {

using Tile =
    Bf16Tile<Weights(Variant::FORMAT), Variant::TOKENS, 1, Variant::STAGES, 4, false, Laid::stored, false, looks_up<Variant>>;
using Order = SplitOrder<Tile, Variant::SPLITS>;
using Way = Bf16Product<Tile, Order, Variant::SPLITS>;
constexpr int DYNAMIC_SHARED_BYTES = sizeof(Way);

}  // namespace zoo

// As of four_bit_stored_split.cu.
extern "C" __global__ void __launch_bounds__(zoo::Tile::THREADS, Variant::CTAS)
    ZOO_KERNEL(const __grid_constant__ zoo::TensorMap a, const __grid_constant__ zoo::TensorMap b, const uint8_t* b_scale,
               int64_t b_scale_row, uint8_t* d, int64_t d_stride, int d_kind, int rows, int box_rows, int scales_a_row, int N,
               int tiles, int chunks, const float* alpha, const uint8_t* largest, const uint8_t* bias, int bias_is_bf16,
               const float* row_scale) {
    extern __shared__ __align__(1024) uint8_t memory[];
    const zoo::StoredScales<> scales{b_scale, 0, b_scale_row, N, scales_a_row, largest};
    const zoo::StoredOperands<zoo::Tile> operands{{a, {nullptr, tiles, chunks}, box_rows, {}}, b, scales};
    const zoo::FourBitResult<zoo::Tile::FORMAT> result{d,    d_stride, d_kind,  N,    nullptr,           nullptr,
                                                       rows, alpha,    largest, bias, bias_is_bf16 != 0, row_scale};
    const zoo::Order order(rows, N, zoo::tiles_of(chunks, zoo::Tile::CHUNKS));
    reinterpret_cast<zoo::Way*>(memory)->run(order, operands, {}, result);
}
