// gemm.{mxfp8,mxfp4,nvfp4,mxfp8_mxfp4}.{m_grouped_contiguous,m_grouped_masked} on Blackwell: groups of rows of A, each with a B of its own. Groups
// follow each other, or have slots of equal height, of which they use the first rows:
//
//     A, rows    |   group 0    | g 1 |     group 2     | no group         | slot 0    ~~~~~~ | slot 1 ~~~~~~~~~ | slot 2    ~~~~ |
//     tiles      | 0   | 1   | 2| 3   | 4   | 5   | 6|                     | 0   | 1   |      | 2   |            | 3   | 4   |
//     scales     | 0   | 1   | 2| 3   | 4   | 5   | 6|  of 128 rows        | 0   | 1   | 2    | 3   | 4   | 5    | 6   | 7   | 8   |
//
// Only the device knows how many rows a group has. The grid has at most a CTA for each multiprocessor, and CTAs walk over the tiles that there
// are. The MMAs of a tile may read rows of another group; the epilogue does not store their sums.
//
//     schedule/grouped_tiles.cuh      where is tile `index`, and in which group? (schedule/tiles.cuh, gemm/schedule/tile_schedule.cuh: one matrix)
//     tile.cuh                        what does a CTA hold in shared and tensor memory, and which barriers guard it?
//     pipeline.cuh                    which warp does what, and which tile comes next?
//     load/elements.cuh               how do K blocks get into shared memory?
//     load/blocked_scales.cuh         how do their scales get there?
//     mainloop.cuh                    how are they multiplied?
//     epilogue/sums.cuh               how do sums get from tensor memory into registers?
//     epilogue/finish.cuh             how do sums become elements of D?
//     epilogue/store_d.cuh            which lanes store which elements of D?

#include "gemm/blackwell/epilogue/store_d.cuh"
#include "gemm/blackwell/load/blocked_scales.cuh"
#include "gemm/blackwell/load/elements.cuh"
#include "gemm/blackwell/schedule/grouped_tiles.cuh"

namespace zoo {

using Tile = TileOf<Variant>;
constexpr int DYNAMIC_SHARED_BYTES = sizeof(Tile);

using Groups = std::conditional_t<Variant::IN_SLOTS, MaskedGroups, ContiguousGroups>;

}  // namespace zoo

// Masked groups have slots of `rows` rows. scale_rows are rows of scale tiles of A. A tile has `weights` columns of D. One TMA copy loads
// box_rows rows of MMA operand B.
extern "C" __global__ void __launch_bounds__(zoo::THREADS, 1) ZOO_KERNEL(ZOO_PARAMETERS) {
    using namespace zoo;
    using Format = Tile::Format;
    extern __shared__ __align__(1024) uint8_t memory[];
    Tile& tile = *reinterpret_cast<Tile*>(memory);
    const int scales = K / Format::SCALE_BLOCK, scale_tiles = ceil_div(scales, SCALE_TILE_COLUMNS);
    const KShare share{ceil_div(K, Format::K_BLOCK_ELEMENTS)};
    const BlockedScaleLoader<Tile> scale_loader{
        {a_scale_map, a_scale, scales, scale_tiles, scale_rows},
        {b_scale_map, b_scale, scales, scale_tiles, count * ceil_div(N, SCALE_TILE_ROWS)}};
    const Finish finish{.d = d,
                        .d_stride = d_stride,
                        .dtype = d_type,
                        .alpha = alpha,
                        .alpha_stride = alpha_stride,
                        .bias = {bias, bias_is_bf16},
                        .bias_stride = N,
                        .row_scale = row_scale};
    Pipeline<Tile> pipeline{tile, Tile::CTAS, walk_of(persistent != 0, true)};
    const StoreD<Tile> store{tile, finish, pipeline};
    const GroupedTiles<Tile, Groups> tiles{Groups::of(groups, rows), count, N, weights, share};
    const ElementLoader<Tile> elements{a, b, box_rows, weight_row_bytes<Format>(types)};
    pipeline.run(tiles, elements, scale_loader, types, K, store);
    pipeline.free_tensor_memory();
}
