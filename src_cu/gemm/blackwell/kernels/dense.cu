// gemm.{mxfp8,mxfp4,nvfp4,mxfp8_mxfp4}.dense on Blackwell: D (M, N) = A (M, K) B (N, K)^T. A row of A is a token, a row of B a weight row.
//
//     schedule/tiles.cuh          where is tile `index` of D? (gemm/schedule/tile_schedule.cuh: bands of tiles)
//     tile.cuh                    what does a CTA hold in shared and tensor memory, and which barriers guard it?
//     pipeline.cuh                which warp does what, and which tile comes next?
//     load/elements.cuh           how do K blocks get into shared memory?
//     load/blocked_scales.cuh     how do their scales get there?
//     mainloop.cuh                how are they multiplied?
//     epilogue/sums.cuh           how do sums get from tensor memory into registers?
//     epilogue/finish.cuh         how do sums become elements of D?
//     epilogue/store_d.cuh        which lanes store which elements of D, and how do CTAs add up shares of K?

#include "gemm/blackwell/epilogue/store_d.cuh"
#include "gemm/blackwell/load/blocked_scales.cuh"
#include "gemm/blackwell/load/elements.cuh"

namespace zoo {

using Tile = TileOf<Variant>;
constexpr int DYNAMIC_SHARED_BYTES = sizeof(Tile);

}  // namespace zoo

// A tile has `weights` columns of D. One TMA copy loads box_rows rows of MMA operand B.
extern "C" __global__ void __launch_bounds__(zoo::THREADS, 1) ZOO_KERNEL(ZOO_PARAMETERS) {
    using namespace zoo;
    using Format = Tile::Format;
    extern __shared__ __align__(1024) uint8_t memory[];
    Tile& tile = *reinterpret_cast<Tile*>(memory);
    const int blocks = ceil_div(K, Format::K_BLOCK_ELEMENTS), scales = K / Format::SCALE_BLOCK,
              scale_tiles = ceil_div(scales, SCALE_TILE_COLUMNS);
    const int split = splits > 1 ? cluster_rank() : 0;
    const DenseTiles<Tile> tiles{rows, N, weights, {blocks, splits, split}};
    const ElementLoader<Tile, true> elements{a, b, box_rows, weight_row_bytes<Format>(types),
                                             b_is_constant ? Tile::WEIGHTS_AHEAD : 0};
    const BlockedScaleLoader<Tile> scale_loader{{a_scale_map, a_scale, scales, scale_tiles, ceil_div(rows, SCALE_TILE_ROWS)},
                                                {b_scale_map, b_scale, scales, scale_tiles, ceil_div(N, SCALE_TILE_ROWS)}};
    const Finish finish{.d = d,
                        .d_stride = d_stride,
                        .dtype = d_type,
                        .alpha = alpha,
                        .bias = {bias, bias_is_bf16},
                        .row_scale = row_scale,
                        .c = {c, c_is_bf16},
                        .c_stride = c_stride};
    compute_d(tile, tiles, elements, scale_loader, types, K, finish, persistent != 0);
}
