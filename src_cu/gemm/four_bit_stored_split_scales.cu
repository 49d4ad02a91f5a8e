// As four_bit_stored_split.cu, but tokens have scales for 1 x 128, as in four_bit_swiglu_scales.cu.

#include "gemm/four_bit/product.cuh"

namespace zoo {

using Tile = FourBitTile<Weights(Variant::FORMAT), Variant::TOKENS, 1, 2, Variant::STAGES, 4, false, false,
                         Promotion(Variant::PROMOTION), Laid::stored, false>;
using Order = SplitOrder<Tile, Variant::SPLITS>;
using Way = FourBitProduct<Tile, Order, Variant::SPLITS>;
constexpr int DYNAMIC_SHARED_BYTES = sizeof(Way);

}  // namespace zoo

extern "C" __global__ void __launch_bounds__(zoo::Tile::THREADS, Variant::CTAS)
    ZOO_KERNEL(const __grid_constant__ zoo::TensorMap a, const __grid_constant__ zoo::TensorMap b, const uint8_t* b_scale,
               int64_t b_scale_row, uint8_t* d, int64_t d_stride, int d_kind, int rows, int box_rows, int scales_a_row, int N,
               int tiles, int chunks, const float* a_scale, const float* alpha, const uint8_t* largest, const uint8_t* bias,
               int bias_is_bf16, const float* row_scale, const float* a_block_scale, int64_t a_scale_row, int64_t a_scale_block,
               int64_t a_scale_group) {
    extern __shared__ __align__(1024) uint8_t memory[];
    const zoo::StoredScales<> scales{b_scale, 0, b_scale_row, N, scales_a_row, largest};
    const zoo::StoredOperands<zoo::Tile> operands{
        {a,
         {nullptr, tiles, chunks},
         box_rows,
         {a_block_scale, a_scale_row, a_scale_block, a_scale_group, zoo::tiles_of(chunks, 2)}},
        b,
        scales};
    const zoo::FourBitResult<zoo::Tile::FORMAT> result{d,    d_stride, d_kind,  N,    a_scale,           nullptr,
                                                       rows, alpha,    largest, bias, bias_is_bf16 != 0, row_scale};
    const auto order = [&] { return zoo::Order(rows, N, zoo::tiles_of(chunks, zoo::PROMOTED_CHUNKS)); };
    reinterpret_cast<zoo::Way*>(memory)->run(order, operands, {}, result);
}
