// gemm.fp8b128.{m_grouped_contiguous, m_grouped_masked} on Blackwell: groups of rows of A, each with a B of its own.
//
//     GROUPING               groups
//     m_grouped_contiguous   follow each other: `groups` has the row after each group's last
//     m_grouped_masked       have slots of `rows` rows: `groups` has how many of them each group uses
//     m_indices              are rows with equal numbers: `groups` has the group of each row, or -1
//
//     schedule/grouped_tiles.cuh      where is tile `index`, and in which group? (schedule/tiles.cuh, gemm/schedule/tile_schedule.cuh: one matrix)
//     tile.cuh                        what does a CTA hold in shared and tensor memory, and which barriers guard it?
//     pipeline.cuh                    which warp does what, and which tile comes next?
//     load/elements.cuh               how do K blocks get into shared memory?
//     fp8b128/scales.cuh              how do their scales get there?
//     mainloop.cuh                    how are they multiplied?
//     epilogue/sums.cuh               how do sums get from tensor memory into registers?
//     epilogue/finish.cuh             how do sums become elements of D?
//     epilogue/store_d.cuh            which lanes store which elements of D?

#include "gemm/blackwell/epilogue/store_d.cuh"
#include "gemm/blackwell/fp8b128/scales.cuh"
#include "gemm/blackwell/load/elements.cuh"
#include "gemm/blackwell/schedule/grouped_tiles.cuh"

namespace zoo {

using Tile = TileOf<Variant>;
constexpr int DYNAMIC_SHARED_BYTES = sizeof(Tile);

}  // namespace zoo

// Groups have slots of `rows` rows; m_indices: A has `rows` rows. A tile has `weights` columns of D. One TMA copy loads
// box_rows rows of MMA operand B.
extern "C" __global__ void __launch_bounds__(zoo::THREADS, 1) ZOO_KERNEL(ZOO_PARAMETERS) {
    using namespace zoo;
    extern __shared__ __align__(1024) uint8_t memory[];
    Tile& tile = *reinterpret_cast<Tile*>(memory);
    constexpr auto GROUPING = Grouping(Variant::GROUPING);
    constexpr bool MASKED = GROUPING == Grouping::m_grouped_masked;
    const int blocks = ceil_div(K, Tile::Format::K_BLOCK_ELEMENTS);
    const ElementLoader<Tile> elements{a, b, box_rows};
    const Fp8b128ScaleLoader<Tile, SequentialTokenScales> scales{
        {a_scale, a_scale_is_ue8m0, MASKED ? a_scale_group : 0, a_scale_row, a_scale_block},
        {b_scale, b_scale_is_ue8m0, b_scale_group, b_scale_row, b_scale_block},
        SequentialTokenScales(MASKED ? rows : 0)};
    const Finish finish{.d = d, .d_stride = d_stride, .dtype = d_type, .row_scale = row_scale};
    Pipeline<Tile> pipeline{tile, Tile::CTAS, walk_of(persistent != 0, true)};
    const auto run = [&](const auto& tiles) {
        pipeline.run(tiles, elements, scales, E4M3_TYPES, K, StoreD<Tile>{tile, finish, pipeline});
    };
    if constexpr (GROUPING == Grouping::m_grouped_contiguous)
        run(GroupedTiles<Tile, ContiguousGroups>{{groups}, count, N, weights, {blocks}});
    else if constexpr (MASKED)
        run(GroupedTiles<Tile, MaskedGroups>{{groups, rows}, count, N, weights, {blocks}});
    else
        run(IndexedTiles<Tile>{groups, rows, N, weights, blocks});
    pipeline.free_tensor_memory();
}
