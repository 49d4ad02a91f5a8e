// gemm.bf16_nvfp4.<grouping>.stored and gemm.bf16_mxfp4.<grouping>.stored: as four_bit_bf16.cu, but that B is as a checkpoint has it, rows of
// codes and rows of scales (four_bit/bf16_stored.cuh). One cubin for every grouping.

#include <type_traits>

#include "gemm/four_bit/bf16_product.cuh"
#include "gemm/four_bit/gated_order.cuh"

namespace zoo {

using Tile =
    Bf16Tile<Weights(Variant::FORMAT), Variant::TOKENS, 1, Variant::STAGES, 4, false, Laid::stored, true, looks_up<Variant>>;
using Places = AnyPlaces<false>;
using Order = OrderOfFewOrManyGroups<Tile, Variant::TOKENS, Variant::BAND, Places>;
using Way = Bf16Product<Tile, Order, 1>;
constexpr int DYNAMIC_SHARED_BYTES = sizeof(Way);

}  // namespace zoo

// As of four_bit_stored.cu; K: of A.
extern "C" __global__ void __launch_bounds__(zoo::Tile::THREADS, Variant::CTAS)
    ZOO_KERNEL(const __grid_constant__ zoo::TensorMap a, const __grid_constant__ zoo::TensorMap b, const uint8_t* a_first,
               int64_t a_stride, const uint8_t* b_scale, int64_t b_scale_group, int64_t b_scale_row, uint8_t* d, int64_t d_stride,
               int d_kind, const int* places, const int* index, int groups, int rows, int a_rows, int box_rows, int scales_a_row,
               int N, int K, int tiles, int chunks, const float* alpha, const uint8_t* largest, const uint8_t* bias,
               int bias_is_bf16, const float* row_scale) {
    extern __shared__ __align__(1024) uint8_t memory[];
    const zoo::StoredScales<> scales{b_scale, b_scale_group, b_scale_row, N, scales_a_row, largest};
    const zoo::StoredOperands<zoo::Tile> operands{{a, {nullptr, tiles, chunks}, box_rows, {}}, b, scales};
    const zoo::IndexedRows indexed{a_first, 2 * a_stride, a_rows, 2 * K, index};
    const zoo::FourBitResult<zoo::Tile::FORMAT> result{d,      d_stride, d_kind,  N,    nullptr,           nullptr,
                                                       a_rows, alpha,    largest, bias, bias_is_bf16 != 0, row_scale};
    const zoo::Order order(zoo::Places{places, rows}, groups, N, zoo::tiles_of(chunks, zoo::Tile::CHUNKS));
    reinterpret_cast<zoo::Way*>(memory)->run(order, operands, indexed, result);
}
