// gemm.fp8b128.dense for many tokens: D (M, N) = A (M, K) B (N, K)^T. A and B are e4m3, with a scale for 1 x 128 of A and for 128 x 128 of B. Rows
// of A are called tokens, rows of B weights. CTAs are persistent.
//
// A producer warpgroup loads elements and scales into a ring of stages. One to three math warpgroups multiply, promote and store. Its files:
//
//     schedule/tile_schedule.cuh              Which tile does a CTA compute next?
//     hopper_fp8/tile.cuh                     What is in a stage, and which warps arrive at its barriers?
//     hopper_fp8/operands.cuh                 Where do elements and scales come from?
//     hopper_fp8/producer.cuh                 How do producer warps fill the stages?
//     hopper_fp8/mainloop.cuh                 How do math warps multiply and promote K blocks?
//     hopper_fp8/store_rows.cuh               How do sums become rows of D?
//     hopper_fp8/pipeline/many_tokens.cuh     Which warps do what, and when? The default.
//     hopper_fp8/pipeline/overlapped_epilogue.cuh     Which warps do what, if the tensor cores multiply the next tile while D is stored?
//     hopper_fp8/kernels/dense.cuh            What are the kernel's arguments?
//
// Other kernels of gemm.fp8b128.dense: dense_few.cu, dense_split_k_last_wave.cu.

#include "gemm/hopper_fp8/pipeline/many_tokens.cuh"
#include "gemm/hopper_fp8/pipeline/overlapped_epilogue.cuh"
#include "gemm/schedule/tile_schedule.cuh"

namespace zoo {

using Tile =
    Fp8Tile<Variant::TOKENS, Variant::WEIGHTS, Variant::STAGES, Variant::WARPGROUPS, Variant::SWAPPED, Variant::OVERLAPPED>;
using Rows = EvenTiles<Tile>;
using DenseOperands = EvenTileOperands<Tile>;
using Schedule = DenseSchedule<Tile, Variant::BAND, Rows>;
using Pipeline = ZOO_PIPELINE<Tile>;

}  // namespace zoo

#include "gemm/hopper_fp8/kernels/dense.cuh"
