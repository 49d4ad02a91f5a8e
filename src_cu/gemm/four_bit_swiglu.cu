// gemm.{fp8_nvfp4, fp8_mxfp4, bf16_nvfp4, bf16_mxfp4}.<grouping>.{swiglu, swiglu_fp8b128}: the first product of an expert and its activation
// on Hopper. As four_bit.cu and four_bit_bf16.cu, but that packed rows are gates and ups, eight and eight, and D is made of both:
//
//     four_bit/gated_tile.cuh       the tile, whose tokens may come through an index
//     four_bit/gated_order.cuh      groups, places or one matrix, as the launch says; tiles whose columns share scales
//     four_bit/gated_result.cuh     from sums to h: scales, bias, activation
//     four_bit/gated_store.cuh      h in 16 bits
//     four_bit/gated_pairs.cuh      h in e4m3, as the next product takes it
//     four_bit/gated_exchange.cuh   the same where two CTAs have what shares scales
//     four_bit/gated_parts.cuh      which of these a variant has
//     four_bit/gated_product.cuh    all of them put together
//
// A tile has 128 packed rows, so 64 columns of h.

#include <type_traits>

#include "gemm/four_bit/gated_parts.cuh"
#include "gemm/four_bit/gated_product.cuh"

namespace zoo {

constexpr bool OF_BF16 = Variant::TOKEN_BYTES == 2;
constexpr Weights FORMAT = Weights(Variant::FORMAT);
constexpr int GATHERING_THREADS = Variant::CTAS > 1 ? 32 : 96;  // more would leave two CTAs of 32 bf16 tokens too few registers

using Fp8Tokens = FourBitTile<FORMAT, Variant::TOKENS, Variant::TURNS, 2, Variant::STAGES, 4, false, fits<Variant>>;
using Bf16Tokens = Bf16Tile<FORMAT, Variant::TOKENS, 1, Variant::STAGES, Variant::CHUNKS, false>;
using Tokens = std::conditional_t<OF_BF16, Bf16Tokens, Fp8Tokens>;
using Places = AnyPlaces<(Variant::TOKENS == 128)>;

using Tile = MayGather<Tokens, GATHERING_THREADS>;
using RowsOfOne = std::conditional_t<Variant::TOKENS == 8, OnlyHalves, GatedPairs<Tile>>;  // eight rows in e4m3 are for clusters
using Parts = GatedParts<Variant, Tile, Places, RowsOfOne>;
using Order = Parts::Order;
using Way = GatedProduct<Tile, Order, Parts::Rows>;
constexpr int DYNAMIC_SHARED_BYTES = sizeof(Way);

}  // namespace zoo

// rows: of a place, of the only matrix, or 0; a_rows: of A where rows are gathered, and then box_rows is 0; tiles: of 64 packed rows; chunks:
// 64 of K each; parts: tiles whose columns share scales.
extern "C" __global__ void __launch_bounds__(zoo::Tile::THREADS, Variant::CTAS)
    ZOO_KERNEL(const __grid_constant__ zoo::TensorMap a, const uint8_t* a_first, int64_t a_stride, const uint8_t* b,
               const int* places, const int* index, int groups, int rows, int a_rows, int box_rows, int N, int K, int tiles,
               int chunks, int parts, const float* a_scale, const float* alpha, int alphas, const uint8_t* largest,
               const uint8_t* bias, int bias_is_bf16, int interleaved, const float* row_scale, int activation, float limit,
               uint8_t* d, int64_t d_stride, int d_kind, float* scales, int64_t scales_group, int64_t scales_row,
               int64_t scales_block, int pow2, const float* known, int one_known, int in_fragments) {
    extern __shared__ __align__(1024) uint8_t memory[];
    const zoo::FourBitOperands<zoo::Tile> operands{a, {b, tiles, chunks}, box_rows};
    const zoo::IndexedRows indexed{a_first, Variant::TOKEN_BYTES * a_stride, a_rows, Variant::TOKEN_BYTES * K, index};
    const zoo::GatedResult<zoo::FORMAT> result{{d, d_stride, d_kind, N, zoo::OF_BF16 ? nullptr : a_scale, index, a_rows, alpha,
                                                largest, bias, bias_is_bf16 != 0, row_scale},
                                               alphas,
                                               interleaved != 0,
                                               zoo::Gate(activation) != zoo::Gate::silu,
                                               zoo::Activation(zoo::Gate(activation), limit)};
    const zoo::GatedElements elements{scales,      scales_group, scales_row,     scales_block,     places != nullptr ? rows : 0,
                                      {pow2 != 0}, known,        one_known != 0, in_fragments != 0};
    const zoo::Order order(zoo::Places{places, rows}, groups, N, parts, zoo::tiles_of(chunks, zoo::Tile::CHUNKS));
    reinterpret_cast<zoo::Way*>(memory)->run(order, operands, indexed, result, elements);
}
