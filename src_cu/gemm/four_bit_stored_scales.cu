// As four_bit_stored.cu, but tokens have scales for 1 x 128, as in four_bit_swiglu_scales.cu.

#include "gemm/four_bit/gated_order.cuh"
#include "gemm/four_bit/product.cuh"

namespace zoo {

using Tile = FourBitTile<Weights(Variant::FORMAT), Variant::TOKENS, Variant::TURNS, 2, Variant::STAGES, 4, false, false,
                         Promotion(Variant::PROMOTION), Laid::stored>;
using Places = AnyPlaces<false>;
using Order = OrderOfFewOrManyGroups<Tile, Variant::TOKENS, Variant::BAND, Places>;
using Way = FourBitProduct<Tile, Order, 1>;
constexpr int DYNAMIC_SHARED_BYTES = sizeof(Way);

}  // namespace zoo

extern "C" __global__ void __launch_bounds__(zoo::Tile::THREADS, Variant::CTAS)
    ZOO_KERNEL(const __grid_constant__ zoo::TensorMap a, const __grid_constant__ zoo::TensorMap b, const uint8_t* a_first,
               int64_t a_stride, const uint8_t* b_scale, int64_t b_scale_group, int64_t b_scale_row, uint8_t* d, int64_t d_stride,
               int d_kind, const int* places, const int* index, int groups, int rows, int a_rows, int box_rows, int scales_a_row,
               int N, int tiles, int chunks, const float* a_scale, const float* alpha, const uint8_t* largest,
               const uint8_t* bias, int bias_is_bf16, const float* row_scale, const float* a_block_scale, int64_t a_scale_row,
               int64_t a_scale_block, int64_t a_scale_group) {
    extern __shared__ __align__(1024) uint8_t memory[];
    const zoo::StoredScales<> scales{b_scale, b_scale_group, b_scale_row, N, scales_a_row, largest};
    const zoo::StoredOperands<zoo::Tile> operands{
        {a,
         {nullptr, tiles, chunks},
         box_rows,
         {a_block_scale, a_scale_row, a_scale_block, a_scale_group, zoo::tiles_of(chunks, 2)}},
        b,
        scales};
    const zoo::IndexedRows indexed{a_first, a_stride, a_rows, chunks * zoo::CHUNK, index};
    const zoo::FourBitResult<zoo::Tile::FORMAT> result{d,      d_stride, d_kind,  N,    a_scale,           index,
                                                       a_rows, alpha,    largest, bias, bias_is_bf16 != 0, row_scale};
    const auto order = [&] {
        return zoo::Order(zoo::Places{places, rows}, groups, N, zoo::tiles_of(chunks, zoo::PROMOTED_CHUNKS));
    };
    reinterpret_cast<zoo::Way*>(memory)->run(order, operands, indexed, result);
}
