// gemm.fp8b128.m_grouped_gather on Blackwell: as fp8b128_groups_blackwell.cu with groups back to back, but row i of D takes row index[i]
// of A. The copy engine gathers elements (gather.cuh); scales are brought by hand anyway, and come through the index, too.

#include "gemm/block_scaled/chosen.cuh"
#include "gemm/block_scaled/gather.cuh"
#include "gemm/block_scaled/order.cuh"
#include "gemm/block_scaled/scales_by_hand.cuh"

namespace zoo {

using Tile = GatheringTile<TileOf<Variant>>;
constexpr int DYNAMIC_SHARED_BYTES = sizeof(Tile);

struct ScalesByIndex : WeightsInSquares {
    RowsByIndex rows;
    __device__ __forceinline__ int64_t place(const ScaleMatrix& scales, const ScaledWork& work, int token) const {
        const int row = rows.of(work, token);
        return row < 0 ? -1 : row * scales.row;
    }
};

}  // namespace zoo

// rows: of A.
extern "C" __global__ void __launch_bounds__(zoo::THREADS_OF_ROLES, 1)
    ZOO_KERNEL(const __grid_constant__ zoo::TensorMap a, const __grid_constant__ zoo::TensorMap b, const uint8_t* a_scale,
               const uint8_t* b_scale, int a_scale_is_ue8m0, int b_scale_is_ue8m0, int64_t a_scale_row, int64_t a_scale_block,
               int64_t b_scale_group, int64_t b_scale_row, int64_t b_scale_block, const int* index, const int* offsets, int count,
               int rows, int N, int K, int weights, int asks, uint8_t* d, int64_t d_stride, int dtype, const float* row_scale) {
    using namespace zoo;
    extern __shared__ __align__(1024) uint8_t memory[];
    Tile& tile = *reinterpret_cast<Tile*>(memory);
    const RowsByIndex by_index{index, rows};
    const GatheredElements<Tile> elements{a, b, by_index, {Tile::WEIGHTS}};
    const ScalesByHand<Tile, ScalesByIndex> scales{{a_scale, a_scale_is_ue8m0, 0, a_scale_row, a_scale_block},
                                                   {b_scale, b_scale_is_ue8m0, b_scale_group, b_scale_row, b_scale_block},
                                                   {{}, by_index}};
    const Finish finish{d, d_stride, Stored(dtype), nullptr, 0, {nullptr, 0}, 0, row_scale, {nullptr, 0}, 0};
    const ShareOfLines share{tiles_of(K, Tile::Kind::ELEMENTS_A_LINE), 1, 0};
    const ManyMatrices<Tile, RaggedGroups> order{RaggedGroups{{offsets}}, count, N, weights, share};
    Product<Tile> product{tile, Tile::CTAS, asks != 0};

    constexpr uint32_t TYPES = TYPE_E4M3 << 7 | TYPE_E4M3 << 10;
    product.run(order, elements, scales, TYPES, K, [&](Drain<Tile>& drain, const ScaledWork& work, int lane) {
        drain.run(tile, work, [&](int first, auto& sums) { store_chunk<Tile>(finish, work, lane, first, sums); });
    });
    product.free();
}
