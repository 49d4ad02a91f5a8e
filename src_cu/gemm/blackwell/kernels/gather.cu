// gemm.{mxfp8,mxfp4,nvfp4,mxfp8_mxfp4}.m_grouped_gather on Blackwell: contiguous groups of rows of D, each with a B of its own. Row i of D reads
// row index[i] of A: tokens need not be permuted, nor copied for each of their experts.
//
//     schedule/grouped_tiles.cuh      where is tile `index`, and in which group? (schedule/tiles.cuh, gemm/schedule/tile_schedule.cuh: one matrix)
//     tile.cuh                        what does a CTA hold in shared and tensor memory, and which barriers guard it?
//     pipeline.cuh                    which warp does what, and which tile comes next?
//     load/gathered_elements.cuh      how do rows of A through an index, and rows of B, get into shared memory?
//     load/gathered_scales.cuh        how do their scales get there? (load/blocked_scales.cuh: B's)
//     mainloop.cuh                    how are they multiplied?
//     epilogue/sums.cuh               how do sums get from tensor memory into registers?
//     epilogue/finish.cuh             how do sums become elements of D?
//     epilogue/store_d.cuh            which lanes store which elements of D?

#include "gemm/blackwell/epilogue/store_d.cuh"
#include "gemm/blackwell/load/gathered_scales.cuh"
#include "gemm/blackwell/schedule/grouped_tiles.cuh"

namespace zoo {

using Tile = GatheringTile<TileOf<Variant>>;
constexpr int DYNAMIC_SHARED_BYTES = sizeof(Tile);

}  // namespace zoo

// A has `rows` rows. A tile has `weights` columns of D.
extern "C" __global__ void __launch_bounds__(zoo::THREADS, 1) ZOO_KERNEL(ZOO_PARAMETERS) {
    using namespace zoo;
    using Format = Tile::Format;
    extern __shared__ __align__(1024) uint8_t memory[];
    Tile& tile = *reinterpret_cast<Tile*>(memory);
    const int scales = K / Format::SCALE_BLOCK, scale_tiles = ceil_div(scales, SCALE_TILE_COLUMNS);
    const RowIndex row_index{index, rows};
    const GatheredElementLoader<Tile> elements{a, b, row_index, {weights}, weight_row_bytes<Format>(types)};
    const GatheredScaleLoader<Tile> scale_loader{
        {a_scale, a_scale_stride, scales},
        row_index,
        {b_scale_map, b_scale, scales, scale_tiles, count * ceil_div(N, SCALE_TILE_ROWS)}};
    const Finish finish{.d = d,
                        .d_stride = d_stride,
                        .dtype = d_type,
                        .alpha = alpha,
                        .alpha_stride = alpha_stride,
                        .bias = {bias, bias_is_bf16},
                        .bias_stride = N,
                        .row_scale = row_scale};
    const KShare share{ceil_div(K, Format::K_BLOCK_ELEMENTS)};
    const GroupedTiles<Tile, ContiguousGroups> tiles{{groups}, count, N, weights, share};
    Pipeline<Tile> pipeline{tile, Tile::CTAS, walk_of(persistent != 0, true)};
    pipeline.run(tiles, elements, scale_loader, types, K, StoreD<Tile>{tile, finish, pipeline});
    pipeline.free_tensor_memory();
}
