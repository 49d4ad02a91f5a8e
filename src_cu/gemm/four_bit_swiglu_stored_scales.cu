// As four_bit_swiglu_stored.cu, but tokens have scales for 1 x 128, as in four_bit_swiglu_scales.cu.

#include "gemm/four_bit/gated_parts.cuh"
#include "gemm/four_bit/gated_product.cuh"

namespace zoo {

constexpr Weights FORMAT = Weights(Variant::FORMAT);

using Tile = FourBitTile<FORMAT, Variant::TOKENS, Variant::TURNS, 2, Variant::STAGES, 4, false, false,
                         Promotion(Variant::PROMOTION), Laid::stored_gates>;
using Places = AnyPlaces<false>;
using Parts = GatedParts<Variant, Tile, Places, GatedPairs<Tile>>;
using Order = Parts::Order;
using Way = GatedProduct<Tile, Order, Parts::Rows>;
constexpr int DYNAMIC_SHARED_BYTES = sizeof(Way);

}  // namespace zoo

extern "C" __global__ void __launch_bounds__(zoo::Tile::THREADS, Variant::CTAS)
    ZOO_KERNEL(const __grid_constant__ zoo::TensorMap a, const __grid_constant__ zoo::TensorMap b, const uint8_t* a_first,
               int64_t a_stride, const uint8_t* b_scale, int64_t b_scale_group, int64_t b_scale_row, int scales_a_row,
               const int* places, const int* index, int groups, int rows, int a_rows, int box_rows, int N, int K, int tiles,
               int chunks, int parts, const float* a_scale, const float* alpha, int alphas, const uint8_t* largest,
               const uint8_t* bias, int bias_is_bf16, int interleaved, const float* row_scale, int activation, float limit,
               uint8_t* d, int64_t d_stride, int d_kind, float* scales, int64_t scales_group, int64_t scales_row,
               int64_t scales_block, int pow2, const float* known, int one_known, int in_fragments, const float* a_block_scale,
               int64_t a_scale_row, int64_t a_scale_block, int64_t a_scale_group) {
    extern __shared__ __align__(1024) uint8_t memory[];
    const zoo::StoredScales<zoo::GateAndUp> weight_scales{b_scale,      b_scale_group, b_scale_row,         N,
                                                          scales_a_row, largest,       {N / 2, interleaved}};
    const zoo::StoredOperands<zoo::Tile> operands{
        {a,
         {nullptr, tiles, chunks},
         box_rows,
         {a_block_scale, a_scale_row, a_scale_block, a_scale_group, zoo::tiles_of(chunks, 2)}},
        b,
        weight_scales};
    const zoo::IndexedRows indexed{a_first, a_stride, a_rows, K, index};
    const zoo::GatedResult<zoo::FORMAT, true> result{
        {d, d_stride, d_kind, N, a_scale, index, a_rows, alpha, largest, bias, bias_is_bf16 != 0, row_scale},
        alphas,
        interleaved != 0,
        zoo::Gate(activation) != zoo::Gate::silu,
        zoo::Activation(zoo::Gate(activation), limit)};
    const zoo::GatedElements elements{scales,      scales_group, scales_row,     scales_block,     places != nullptr ? rows : 0,
                                      {pow2 != 0}, known,        one_known != 0, in_fragments != 0};
    const zoo::Order order(zoo::Places{places, rows}, groups, N, parts, zoo::tiles_of(chunks, zoo::Tile::CHUNKS));
    reinterpret_cast<zoo::Way*>(memory)->run(order, operands, indexed, result, elements);
}
