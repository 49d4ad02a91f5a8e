// gemm.{mxfp8,mxfp4,nvfp4,mxfp8_mxfp4}.m_grouped_gather.{swiglu, swiglu_mxfp8, swiglu_nvfp4, mxfp8, nvfp4} on Blackwell: as epilogues.cu with
// contiguous groups, but row i of the result reads row index[i] of A. The result is the A of the next product's contiguous groups.
//
//     schedule/grouped_tiles.cuh       where is tile `index`, and in which group? (schedule/tiles.cuh, gemm/schedule/tile_schedule.cuh: one matrix)
//     tile.cuh                         what does a CTA hold in shared and tensor memory, and which barriers guard it?
//     pipeline.cuh                     which warp does what, and which tile comes next?
//     load/gathered_elements.cuh       how do rows of A through an index, and rows of B, get into shared memory?
//     load/gathered_scales.cuh         how do their scales get there? (load/blocked_scales.cuh: B's)
//     mainloop.cuh                     how are they multiplied?
//     gated/gates_and_ups.cuh          which rows of B are gates and ups, and what is h? (gemm/epilogue/activation.cuh)
//     epilogue/sums.cuh                how do sums get from tensor memory into registers?
//     epilogue/shared_sums.cuh         how do sums of few tokens get there?
//     epilogue/finish.cuh              how do alpha, bias and row_scale apply, and how does D round?
//     epilogue/results.cuh             how do numbers become elements and scales?
//     epilogue/epilogue.cuh            in which order does all this happen?

#include "gemm/blackwell/epilogue/epilogue.cuh"
#include "gemm/blackwell/load/gathered_scales.cuh"
#include "gemm/blackwell/schedule/grouped_tiles.cuh"

namespace zoo {

using Tile = GatheringTile<TileOf<Variant>>;
constexpr int DYNAMIC_SHARED_BYTES = sizeof(Tile);
constexpr bool GATED = Variant::GATED != 0;

using Argument = ResultOf<ResultFormat(Variant::RESULT)>::Argument;
using Result = ResultOf<ResultFormat(Variant::RESULT)>::Type;
using ResultTiles = GroupedTiles<Tile, ContiguousGroups>;
using Tiles = std::conditional_t<GATED, GatedTiles<Tile, ResultTiles>, ResultTiles>;
using WeightBoxes = std::conditional_t<GATED && !Tile::SWAPPED, SeparateWeightBoxes, OneWeightBox>;

}  // namespace zoo

// A has `rows` rows. The result has N columns, and a tile `weights` of them. One TMA copy loads box_rows rows of B.
extern "C" __global__ void __launch_bounds__(zoo::THREADS, 1) ZOO_KERNEL(ZOO_PARAMETERS) {
    using namespace zoo;
    using Format = Tile::Format;
    extern __shared__ __align__(1024) uint8_t memory[];
    Tile& tile = *reinterpret_cast<Tile*>(memory);
    const int scales = K / Format::SCALE_BLOCK, scale_tiles = ceil_div(scales, SCALE_TILE_COLUMNS);
    const bool in_halves = GATED && gates == Gates::halves;
    const int rows_of_b = GATED ? 2 * N : N;
    const RowIndex row_index{index, rows};
    const WeightBoxes weight_boxes{GATED && !Tile::SWAPPED && in_halves ? N : box_rows};
    const GatheredElementLoader<Tile, WeightBoxes> elements{a, b, row_index, weight_boxes, weight_row_bytes<Format>(types)};
    const GatheredScaleLoader<Tile> scale_loader{
        {a_scale, a_scale_stride, scales},
        row_index,
        {b_scale_map, b_scale, scales, scale_tiles, count * ceil_div(rows_of_b, SCALE_TILE_ROWS), 0,
         in_halves ? N / SCALE_TILE_ROWS : 1}};
    const ResultTiles tiles{ContiguousGroups{groups}, count, N, weights, {ceil_div(K, Format::K_BLOCK_ELEMENTS), 1, 0}};
    const Finish finish{.d = d,
                        .d_stride = d_stride,
                        .dtype = OutputType(d_type),
                        .alpha = alpha,
                        .alpha_stride = alpha_stride,
                        .bias = {bias, bias_is_bf16},
                        .bias_stride = rows_of_b,
                        .row_scale = row_scale};
    const GatedActivation gated{finish, {activation, limit}, N, !in_halves};
    const Result result = result_of<Result>(finish, scales_out, N, int(d_type), argument, argument_stride);

    compute_result(tile, tiles, works_of<Tiles>(tiles, in_halves), tiles.share, elements, scale_loader, types, K,
                   Epilogue<GATED, Result>{finish, gated, result}, walk_of(persistent != 0, true));
}
