// gemm.fp8b128.m_grouped_gather.{swiglu, swiglu_fp8b128} on Blackwell: what fp8b128_swiglu_blackwell.cu makes of groups back to back, of
// rows that A is read at through an index, as fp8b128_gather_blackwell.cu reads it.

#include "gemm/block_scaled/chosen.cuh"
#include "gemm/block_scaled/gated_blocks.cuh"
#include "gemm/block_scaled/gather.cuh"

namespace zoo {

using Tile = GatheringTile<TileOf<Variant>>;
constexpr int DYNAMIC_SHARED_BYTES = sizeof(Tile);

using Groups = ManyMatrices<Tile, RaggedGroups>;
using RowsOfB = std::conditional_t<Tile::SWAPPED, RowsOfOneBox, RowsOfBoxesApart>;

struct GatesByIndex : RowsOfGates {
    RowsByIndex by_index;
    __device__ __forceinline__ GatesByIndex(GateRows gates, RowsByIndex by_index) : RowsOfGates(0, gates), by_index(by_index) {}
    __device__ __forceinline__ int64_t place(const ScaleMatrix& scales, const ScaledWork& work, int token) const {
        const int row = by_index.of(work, token);
        return row < 0 ? -1 : row * scales.row;
    }
};

}  // namespace zoo

// rows: of A. I: columns of the result.
extern "C" __global__ void __launch_bounds__(zoo::THREADS_OF_ROLES, 1)
    ZOO_KERNEL(const __grid_constant__ zoo::TensorMap a, const __grid_constant__ zoo::TensorMap b, const uint8_t* a_scale,
               const uint8_t* b_scale, int a_scale_is_ue8m0, int b_scale_is_ue8m0, int64_t a_scale_row, int64_t a_scale_block,
               int64_t b_scale_group, int64_t b_scale_row, int64_t b_scale_block, const int* index, const int* offsets, int count,
               int rows, int I, int K, int interleaved, int asks, const float* row_scale, uint8_t* d, int64_t d_stride,
               int quantises, float* scales, int64_t scales_row, int64_t scales_block, int64_t pow2) {
    using namespace zoo;
    extern __shared__ __align__(1024) uint8_t memory[];
    Tile& tile = *reinterpret_cast<Tile*>(memory);
    const ShareOfLines share{tiles_of(K, Tile::Kind::ELEMENTS_A_LINE), 1, 0};
    const GateRows gates{I, interleaved != 0};
    const RowsByIndex by_index{index, rows};
    const GatedSquares<Tile, Groups> order{Groups{RaggedGroups{{offsets}}, count, I, BLOCK_OF_RESULT, share}, gates};
    const GatheredElements<Tile, RowsOfB> elements{a, b, by_index, {Tile::SWAPPED ? LANES : gates.step()}};
    const ScalesByHand<Tile, GatesByIndex> scales_of_both{{a_scale, a_scale_is_ue8m0, 0, a_scale_row, a_scale_block},
                                                          {b_scale, b_scale_is_ue8m0, b_scale_group, b_scale_row, b_scale_block},
                                                          {gates, by_index}};
    const BlocksOfResult to{d, d_stride, I, quantises != 0, scales, 0, scales_row, scales_block, 0, pow2 != 0};
    const Finish finish{nullptr, 0, Stored::bf16, nullptr, 0, {nullptr, 0}, 0, nullptr, {nullptr, 0}, 0};
    const Epilogue epilogue{to, row_scale, {finish, {Gate::silu, 0}, I, interleaved != 0}};
    compute(tile, order, elements, scales_of_both, K, share, epilogue, asks != 0);
}
