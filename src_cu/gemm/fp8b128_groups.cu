// gemm.fp8b128.m_grouped_contiguous and m_grouped_masked: each group of rows of A is multiplied by weights of its own. As dense, many
// tokens or few, but for the order: tiles begin where groups begin, wherever that is, and end where they end. Where that is, `places`
// say: offsets, one for each group; or how many rows of its place each group uses, where a place has `rows_of_place`; or, INDEXED,
// m_indices, one for each row.

#include "gemm/pipeline/few_tokens.cuh"
#include "gemm/pipeline/many_tokens.cuh"
#include "gemm/epilogue/sum.cuh"
#include "gemm/pipeline/tiles_ahead.cuh"
#include "gemm/schedule/ends_or_places.cuh"

namespace zoo {

using Tile =
    Fp8b128Tile<Variant::TOKENS, Variant::WEIGHTS, Variant::STAGES, Variant::WARPGROUPS, Variant::SWAPPED, Variant::OVERLAPPED>;
using Way = ZOO_WAY<Tile>;
constexpr int DYNAMIC_SHARED_BYTES = sizeof(Way);

using D = ElementsOfD<Variant>::Type;

__device__ __forceinline__ auto order_of(const int* places, int groups, int rows, int rows_of_place, int N, int blocks) {
    if constexpr (Variant::INDEXED)
        return IndexedOrder<Tile, Variant::BAND>(places, rows, N, blocks);
    else
        return GroupedOrder<Tile, Variant::BAND, EndsOrPlaces>({places, rows_of_place}, groups, N, blocks);
}

}  // namespace zoo

// rows: of A, or of a group's place; rows_of_place: the same, or 0 where groups lie one after the other, as a_scale_group is then.
extern "C" __global__ void __launch_bounds__(zoo::Tile::THREADS, Variant::CTAS)
    ZOO_KERNEL(const __grid_constant__ zoo::TensorMap a, const __grid_constant__ zoo::TensorMap b, const uint8_t* a_scale,
               const uint8_t* b_scale, int a_scale_is_ue8m0, int b_scale_is_ue8m0, uint8_t* d, const int* places, int groups,
               int rows, int N, int blocks, int64_t a_scale_row, int64_t a_scale_block, int64_t b_scale_group,
               int64_t b_scale_row, int64_t b_scale_block, int64_t d_stride, const float* row_scale, int d_is_f16,
               int rows_of_place, int64_t a_scale_group) {
    extern __shared__ __align__(1024) uint8_t memory[];
    const zoo::Scales a_scales{a_scale, a_scale_row, a_scale_block, rows, a_scale_is_ue8m0 != 0};
    const zoo::Scales b_scales{b_scale, b_scale_row, b_scale_block, zoo::tiles_of(N, zoo::SCALE_BLOCK), b_scale_is_ue8m0 != 0};
    const zoo::Operands<zoo::Tile> operands{
        a, b, a_scales, b_scales, Variant::INDEXED ? 0 : a_scale_group, b_scale_group, Variant::INDEXED ? 0 : rows_of_place, N};
    const zoo::Scaled<zoo::Matrix<zoo::D>> target{zoo::matrix_of<zoo::D>(d, d_stride, N, d_is_f16), row_scale};
    const auto order = zoo::order_of(places, groups, rows, rows_of_place, N, blocks);
    reinterpret_cast<zoo::Way*>(memory)->run(order, operands, target);
}
