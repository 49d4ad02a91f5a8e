// gemm.fp8b128.dense on Blackwell: D (M, N) = A (M, K) B (N, K)^T, with scales for 1 x 128 of A and 128 x 128 of B. tcgen05.mma takes
// ue8m0 scales for 32 elements, so a warp converts the scales: a scale of 128 elements is the scale of four K steps.
//
//     schedule/tiles.cuh          where is tile `index` of D? (gemm/schedule/tile_schedule.cuh: bands of tiles)
//     tile.cuh                    what does a CTA hold in shared and tensor memory, and which barriers guard it?
//     pipeline.cuh                which warp does what, and which tile comes next?
//     load/elements.cuh           how do K blocks get into shared memory?
//     fp8b128/scales.cuh          how do their scales get there?
//     mainloop.cuh                how are they multiplied?
//     epilogue/sums.cuh           how do sums get from tensor memory into registers?
//     epilogue/finish.cuh         how do sums become elements of D?
//     epilogue/store_d.cuh        which lanes store which elements of D, and how do CTAs add up shares of K?

#include "gemm/blackwell/epilogue/store_d.cuh"
#include "gemm/blackwell/fp8b128/scales.cuh"
#include "gemm/blackwell/load/elements.cuh"

namespace zoo {

using Tile = TileOf<Variant>;
constexpr int DYNAMIC_SHARED_BYTES = sizeof(Tile);

}  // namespace zoo

extern "C" __global__ void __launch_bounds__(zoo::THREADS, 1) ZOO_KERNEL(ZOO_PARAMETERS) {
    using namespace zoo;
    extern __shared__ __align__(1024) uint8_t memory[];
    Tile& tile = *reinterpret_cast<Tile*>(memory);
    const int split = splits > 1 ? cluster_rank() : 0;
    const DenseTiles<Tile> tiles{M, N, weights, {ceil_div(K, Tile::Format::K_BLOCK_ELEMENTS), splits, split}};
    const ElementLoader<Tile, true> elements{a, b, box_rows, K_BLOCK_BYTES, b_is_constant ? Tile::WEIGHTS_AHEAD : 0};
    const Fp8b128ScaleLoader<Tile, SequentialTokenScales> scales{{a_scale, a_scale_is_ue8m0, 0, a_scale_row, a_scale_block},
                                                                 {b_scale, b_scale_is_ue8m0, 0, b_scale_row, b_scale_block},
                                                                 SequentialTokenScales(0)};
    const Finish finish{
        .d = d, .d_stride = d_stride, .dtype = d_type, .row_scale = row_scale, .c = {c, c_is_bf16}, .c_stride = c_stride};
    compute_d(tile, tiles, elements, scales, E4M3_TYPES, K, finish, persistent != 0);
}
