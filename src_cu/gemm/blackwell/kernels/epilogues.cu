// gemm.{mxfp8,mxfp4,nvfp4,mxfp8_mxfp4}.{dense, m_grouped_contiguous, m_grouped_masked}.{swiglu, swiglu_mxfp8, swiglu_nvfp4, mxfp8, nvfp4} on
// Blackwell: GEMMs with SwiGLU, or with a quantised result, or with both, made from f32 sums:
//
//     sums -> times alpha -> plus bias -> silu(gate) * up, or another activation -> times row_scale -> D
//                                      \_________ if B is gates and ups _________/                  \-> elements and scales
//
// Each step rounds to f32. The last step rounds once to D, or to elements as quantize.{mxfp8,nvfp4}.rows round.
//
//     schedule/tiles.cuh               where is tile `index` of one matrix? (gemm/schedule/tile_schedule.cuh: bands of tiles)
//     schedule/grouped_tiles.cuh       where is tile `index` of groups?
//     tile.cuh                         what does a CTA hold in shared and tensor memory, and which barriers guard it?
//     pipeline.cuh                     which warp does what, and which tile comes next?
//     load/elements.cuh                how do K blocks get into shared memory?
//     load/blocked_scales.cuh          how do their scales get there?
//     mainloop.cuh                     how are they multiplied?
//     gated/gates_and_ups.cuh          which rows of B are gates and ups, and what is h? (gemm/epilogue/activation.cuh)
//     epilogue/sums.cuh                how do sums get from tensor memory into registers?
//     epilogue/shared_sums.cuh         how do sums of few tokens get there, and how do CTAs add up shares of K?
//     epilogue/finish.cuh              how do alpha, bias and row_scale apply, and how does D round?
//     epilogue/results.cuh             how do numbers become elements and scales?
//     epilogue/epilogue.cuh            in which order does all this happen?
//
// Tokens as rows: a thread holds 32 neighbouring columns of a row of the result, one scale block of MXFP8 or two of NVFP4.

#include "gemm/blackwell/epilogue/epilogue.cuh"
#include "gemm/blackwell/load/blocked_scales.cuh"
#include "gemm/blackwell/load/elements.cuh"
#include "gemm/blackwell/schedule/grouped_tiles.cuh"

namespace zoo {

using Tile = TileOf<Variant>;
constexpr int DYNAMIC_SHARED_BYTES = sizeof(Tile);
constexpr bool GATED = Variant::GATED != 0;
constexpr Grouping GROUPING = Grouping(Variant::GROUPING);

using Argument = ResultOf<ResultFormat(Variant::RESULT)>::Argument;
using Result = ResultOf<ResultFormat(Variant::RESULT)>::Type;

using Groups = std::conditional_t<GROUPING == Grouping::m_grouped_masked, MaskedGroups, ContiguousGroups>;
using ResultTiles = std::conditional_t<GROUPING == Grouping::dense, DenseTiles<Tile>, GroupedTiles<Tile, Groups>>;
using Tiles = std::conditional_t<GATED, GatedTiles<Tile, ResultTiles>, ResultTiles>;
using Elements = std::conditional_t<GATED && !Tile::SWAPPED, GatedElementLoader<Tile>, ElementLoader<Tile>>;

template <class T = ResultTiles>
__device__ __forceinline__ T result_tiles_of(const int* groups, int count, int rows, int columns, int weights, KShare share) {
    if constexpr (GROUPING == Grouping::dense)
        return T{rows, columns, weights, share};
    else
        return T{Groups::of(groups, rows), count, columns, weights, share};
}

// `up_rows` as in GatedElementLoader, `box_rows` as in ElementLoader.
template <class T = Elements>
__device__ __forceinline__ T elements_of(const TensorMap& a, const TensorMap& b, int up_rows, int box_rows, uint32_t types) {
    return T{a, b, GATED && !Tile::SWAPPED ? up_rows : box_rows, weight_row_bytes<Tile::Format>(types)};
}

}  // namespace zoo

// A has `rows` rows, or a slot of masked groups. scale_rows are rows of scale tiles of A. The result has N columns, and a tile `weights` of them.
// One TMA copy loads box_rows rows of MMA operand B.
extern "C" __global__ void __launch_bounds__(zoo::THREADS, 1) ZOO_KERNEL(ZOO_PARAMETERS) {
    using namespace zoo;
    using Format = Tile::Format;
    extern __shared__ __align__(1024) uint8_t memory[];
    Tile& tile = *reinterpret_cast<Tile*>(memory);
    const int scales = K / Format::SCALE_BLOCK, scale_tiles = ceil_div(scales, SCALE_TILE_COLUMNS);
    const bool in_halves = GATED && gates == Gates::halves;
    const int rows_of_b = GATED ? 2 * N : N;
    const KShare share{ceil_div(K, Format::K_BLOCK_ELEMENTS), splits, splits > 1 ? int(cluster_rank()) : 0};
    const ResultTiles tiles = result_tiles_of(groups, count, rows, N, weights, share);
    const BlockedScaleLoader<Tile> scale_loader{
        {a_scale_map, a_scale, scales, scale_tiles, scale_rows},
        {b_scale_map, b_scale, scales, scale_tiles, count * ceil_div(rows_of_b, SCALE_TILE_ROWS), 0,
         in_halves ? N / SCALE_TILE_ROWS : 1}};
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

    compute_result(tile, tiles, works_of<Tiles>(tiles, in_halves), share, elements_of(a, b, in_halves ? N : 0, box_rows, types),
                   scale_loader, types, K, Epilogue<GATED, Result>{finish, gated, result},
                   walk_of(persistent != 0, GROUPING != Grouping::dense));
}
