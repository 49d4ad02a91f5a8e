// gemm.fp8b128.dense for many tokens, where CTAs compute whole waves of tiles, and clusters split K of the tiles that fill no wave. Its files:
//
//     schedule/tile_schedule.cuh              Which tile does a CTA compute next?
//     hopper_fp8/tile.cuh                     What is in a stage, and which warps arrive at its barriers?
//     hopper_fp8/operands.cuh                 Where do elements and scales come from?
//     hopper_fp8/producer.cuh                 How do producer warps fill the stages?
//     hopper_fp8/mainloop.cuh                 How do math warps multiply and promote K blocks?
//     hopper_fp8/store_rows.cuh               How do sums become rows of D?
//     hopper_fp8/pipeline/split_k_last_wave.cuh     Which warps do what, and when? How do CTAs exchange the sums of a split tile?
//     hopper_fp8/kernels/dense.cuh            What are the kernel's arguments?

#include "gemm/hopper_fp8/pipeline/split_k_last_wave.cuh"

namespace zoo {

using Tile =
    Fp8Tile<Variant::TOKENS, Variant::WEIGHTS, Variant::STAGES, Variant::WARPGROUPS, Variant::SWAPPED, Variant::OVERLAPPED>;
using DenseOperands = EvenTileOperands<Tile>;
using Schedule = SplitKLastWaveSchedule<Tile, Variant::BAND>;
using Pipeline = ZOO_PIPELINE<Tile>;

}  // namespace zoo

#include "gemm/hopper_fp8/kernels/dense.cuh"
