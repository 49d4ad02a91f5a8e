// gemm.fp8b128.{m_grouped_contiguous, m_grouped_masked} on Blackwell: groups of rows of A, each with a B of its own, as
// fp8b128_blackwell.cu multiplies one matrix; where tiles lie, order.cuh and indexed.cuh say.
//
//     GROUPING    groups are
//     1           back to back: `groups` has the row after each one's last
//     2           in places of `rows` rows: `groups` has how many of them are used
//     3           wherever they begin: `groups` has the group of each row

#include "gemm/block_scaled/chosen.cuh"
#include "gemm/block_scaled/indexed.cuh"
#include "gemm/block_scaled/order.cuh"
#include "gemm/block_scaled/scales_by_hand.cuh"

namespace zoo {

using Tile = TileOf<Variant>;
constexpr int DYNAMIC_SHARED_BYTES = sizeof(Tile);

}  // namespace zoo

extern "C" __global__ void __launch_bounds__(zoo::THREADS_OF_ROLES, 1)
    ZOO_KERNEL(const __grid_constant__ zoo::TensorMap a, const __grid_constant__ zoo::TensorMap b, const uint8_t* a_scale,
               const uint8_t* b_scale, int a_scale_is_ue8m0, int b_scale_is_ue8m0, int64_t a_scale_group, int64_t a_scale_row,
               int64_t a_scale_block, int64_t b_scale_group, int64_t b_scale_row, int64_t b_scale_block, const int* groups,
               int count, int rows, int N, int K, int weights, int right_box, int asks, uint8_t* d, int64_t d_stride, int dtype,
               const float* row_scale) {
    using namespace zoo;
    extern __shared__ __align__(1024) uint8_t memory[];
    Tile& tile = *reinterpret_cast<Tile*>(memory);
    constexpr bool IN_PLACES = Variant::GROUPING == 2;
    const int lines = tiles_of(K, Tile::Kind::ELEMENTS_A_LINE);
    const Elements<Tile> elements{a, b, right_box};
    const ScalesByHand<Tile, RowsAsTheyLie> scales{
        {a_scale, a_scale_is_ue8m0, IN_PLACES ? a_scale_group : 0, a_scale_row, a_scale_block},
        {b_scale, b_scale_is_ue8m0, b_scale_group, b_scale_row, b_scale_block},
        RowsAsTheyLie(IN_PLACES ? rows : 0)};
    const Finish finish{d, d_stride, Stored(dtype), nullptr, 0, {nullptr, 0}, 0, row_scale, {nullptr, 0}, 0};
    Product<Tile> product{tile, Tile::CTAS, asks != 0};

    const auto run = [&](const auto& order) {
        constexpr uint32_t TYPES = TYPE_E4M3 << 7 | TYPE_E4M3 << 10;
        product.run(order, elements, scales, TYPES, K, [&](Drain<Tile>& drain, const ScaledWork& work, int lane) {
            drain.run(tile, work,
                      [&](int first, auto& sums) { store_chunk<Tile>(finish, work, product.rank * LANES + lane, first, sums); });
        });
    };
    if constexpr (Variant::GROUPING == 1)
        run(ManyMatrices<Tile, RaggedGroups>{{{groups}}, count, N, weights, {lines, 1, 0}});
    else if constexpr (IN_PLACES)
        run(ManyMatrices<Tile, GroupsInPlaces>{{{groups, rows}}, count, N, weights, {lines, 1, 0}});
    else
        run(IndexedRows<Tile>{groups, rows, N, weights, lines});
    product.free();
}
