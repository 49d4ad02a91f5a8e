// gemm.fp8b128.m_grouped_gather.{swiglu, swiglu_fp8b128} with a workspace: as fp8b128_gather_swiglu.cu, but that rows and their scales are
// moved into the order of the result once (moved_rows.cuh), from where boxes bring them as they do where rows lie in order.

#include "gemm/load/gated.cuh"
#include "gemm/load/moved_rows.cuh"
#include "gemm/pipeline/many_tokens.cuh"
#include "gemm/epilogue/store_swiglu.cuh"
#include "gemm/schedule/tile_order.cuh"

namespace zoo {

using Tile = MovingTile<Fp8b128Tile<Variant::TOKENS, Variant::WEIGHTS, Variant::STAGES, Variant::WARPGROUPS, Variant::SWAPPED,
                                    Variant::OVERLAPPED, GATES_A_SCALE<Variant::WEIGHTS>, Variant::WEIGHTS / 128>>;
using Result = TileOfResult<Tile>;
static_assert(Result::WEIGHTS == SCALE_BLOCK, "a tile has whole blocks of the result");
using Way = ZOO_WAY<Tile>;
using Order = GroupedOrder<Result, Variant::BAND, OneAfterTheOther>;
constexpr int DYNAMIC_SHARED_BYTES = sizeof(Way);

}  // namespace zoo

// rows: of A; M of the result. The last four are for a quantised result; where it is not, `scales` is null.
extern "C" __global__ void __launch_bounds__(zoo::Tile::THREADS, 1)
    ZOO_KERNEL(const __grid_constant__ zoo::TensorMap moved, const __grid_constant__ zoo::TensorMap b, uint8_t* workspace,
               const uint8_t* a, const uint8_t* a_scale, const uint8_t* b_scale, int a_scale_is_ue8m0, int b_scale_is_ue8m0,
               const float* row_scale, uint8_t* result, const int* index, const int* offsets, int groups, int M, int rows,
               int columns, int K, int gate_step, int gate_to_up, int64_t a_stride, int64_t a_scale_row, int64_t a_scale_block,
               int64_t b_scale_group, int64_t b_scale_row, int64_t b_scale_block, int64_t result_stride, float* scales,
               int64_t scales_row, int64_t scales_block, int64_t pow2) {
    extern __shared__ __align__(1024) uint8_t memory[];
    const zoo::Scales a_scales{a_scale, a_scale_row, a_scale_block, rows, a_scale_is_ue8m0 != 0};
    const zoo::Scales b_scales{b_scale, b_scale_row, b_scale_block, zoo::tiles_of(2 * columns, zoo::SCALE_BLOCK),
                               b_scale_is_ue8m0 != 0};
    const zoo::MoverSpace space(workspace, M, K);
    constexpr int AHEAD = 2 * Variant::BAND * Variant::TOKENS;
    const zoo::MovedOperands<zoo::Tile> from{{moved, b, space.moved_scales(M), b_scales, 0, b_scale_group, 0, 0},
                                             {a, a_stride, rows, K, index},
                                             a_scales,
                                             offsets + groups - 1,
                                             space,
                                             AHEAD};
    const zoo::GatedOperands<zoo::Tile, zoo::MovedOperands<zoo::Tile>> operands{from, gate_step, gate_to_up};
    const zoo::QuantisedMatrix matrix{result, result_stride, columns, scales, 0, scales_row, scales_block, 0, {pow2 != 0}};
    const zoo::Order order({offsets}, groups, columns, zoo::tiles_of(K, zoo::SCALE_BLOCK));
    zoo::Way& way = *reinterpret_cast<zoo::Way*>(memory);
    way.run(order, operands, zoo::Activated<zoo::EitherMatrix>{{matrix}, row_scale});
}
