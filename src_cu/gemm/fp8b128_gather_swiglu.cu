// gemm.fp8b128.m_grouped_gather.{swiglu, swiglu_fp8b128}: the first product of an MoE layer on tokens that lie in their own order, of
// which row i of the result takes row index[i] of A. As fp8b128_swiglu.cu, but that threads copy the rows (gathered_rows.cuh), gates
// and ups bringing as many scales as they have, and that the launch says what the result is: bf16, or e4m3 and its scales.
//
// A tile has 128 gates and 128 ups, so all columns that share a scale of the result, and its rows are copied half as often as those of
// tiles that are 128 columns wide.

#include "gemm/pipeline/few_tokens.cuh"
#include "gemm/load/gathered_gates.cuh"
#include "gemm/pipeline/many_tokens.cuh"
#include "gemm/epilogue/store_swiglu.cuh"
#include "gemm/schedule/tile_order.cuh"

namespace zoo {

using Tile = GatheringTile<Fp8b128Tile<Variant::TOKENS, Variant::WEIGHTS, Variant::STAGES, Variant::WARPGROUPS, Variant::SWAPPED,
                                       Variant::OVERLAPPED, GATES_A_SCALE<Variant::WEIGHTS>, Variant::SWAPPED ? 1 : 2>>;
using Result = TileOfResult<Tile>;
static_assert(Result::WEIGHTS == SCALE_BLOCK, "a tile has whole blocks of the result");
using Way = ZOO_WAY<Tile>;
using Order = GroupedOrder<Result, Variant::BAND, OneAfterTheOther>;
constexpr int DYNAMIC_SHARED_BYTES = sizeof(Way);

}  // namespace zoo

// rows: of A. The last four are for a quantised result; where it is not, `scales` is null.
extern "C" __global__ void __launch_bounds__(zoo::Tile::THREADS, 1)
    ZOO_KERNEL(const __grid_constant__ zoo::TensorMap b, const uint8_t* a, const uint8_t* a_scale, const uint8_t* b_scale,
               int a_scale_is_ue8m0, int b_scale_is_ue8m0, const float* row_scale, uint8_t* result, const int* index,
               const int* offsets, int groups, int rows, int columns, int K, int gate_step, int gate_to_up, int64_t a_stride,
               int64_t a_scale_row, int64_t a_scale_block, int64_t b_scale_group, int64_t b_scale_row, int64_t b_scale_block,
               int64_t result_stride, float* scales, int64_t scales_row, int64_t scales_block, int64_t pow2) {
    extern __shared__ __align__(1024) uint8_t memory[];
    const zoo::Scales a_scales{a_scale, a_scale_row, a_scale_block, rows, a_scale_is_ue8m0 != 0};
    const zoo::Scales b_scales{b_scale, b_scale_row, b_scale_block, zoo::tiles_of(2 * columns, zoo::SCALE_BLOCK),
                               b_scale_is_ue8m0 != 0};
    const zoo::GatheredRows source{a, a_stride, rows, K, index};
    const zoo::GatheredGates<zoo::Tile> operands{{source, b, a_scales, b_scales, b_scale_group, 0}, gate_step, gate_to_up};
    const zoo::QuantisedMatrix matrix{result, result_stride, columns, scales, 0, scales_row, scales_block, 0, {pow2 != 0}};
    const zoo::Order order({offsets}, groups, columns, zoo::tiles_of(K, zoo::SCALE_BLOCK));
    zoo::Way& way = *reinterpret_cast<zoo::Way*>(memory);
    way.run(order, operands, zoo::Activated<zoo::EitherMatrix>{{matrix}, row_scale});
}
