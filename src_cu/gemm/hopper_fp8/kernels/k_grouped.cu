// gemm.fp8b128.k_grouped: D of each group = A (M, K) B (N, K)^T over the group's columns of K. A and B have a scale for 1 x 128. These are weight
// gradients: K counts tokens, and quantize.fp8b128.cols.m_grouped_contiguous writes both operands. Its files:
//
//     hopper_fp8/k_grouped/schedule.cuh       Which tile of which group does a CTA compute next? With schedule/tile_schedule.cuh.
//     hopper_fp8/{tile, k_grouped/tile}.cuh   What is in a stage, and which warps arrive at its barriers?
//     hopper_fp8/k_grouped/producer.cuh       How are K blocks loaded, and the ends of groups cleared? It reads scales as operands.cuh.
//     hopper_fp8/k_grouped/mainloop.cuh       How do math warps multiply and promote K blocks? It issues passes as mainloop.cuh.
//     hopper_fp8/k_grouped/store.cuh          How does the copy engine store D, or add to D? It uses the types of store_rows.cuh.
//     hopper_fp8/k_grouped/pipeline.cuh       Which warps do what, and when?

#include "gemm/hopper_fp8/k_grouped/pipeline.cuh"

namespace zoo {

using Tile = KGroupedTile<Variant::TOKENS, Variant::WEIGHTS, Variant::STAGES, Variant::WARPGROUPS, Variant::HELD>;
using Buffers = StoreBuffers<Variant::PIECES, Variant::PIECE_ROWS>;
using Pipeline = KGroupedPipeline<Tile, Buffers>;
constexpr int DYNAMIC_SHARED_BYTES = sizeof(Pipeline);

}  // namespace zoo

extern "C" __global__ void __launch_bounds__(zoo::Tile::THREADS, Variant::CTAS) ZOO_KERNEL(ZOO_PARAMETERS) {
    extern __shared__ __align__(1024) uint8_t memory[];
    const zoo::GroupedOutput<Variant::d> target{d_map, {d, d_stride, N}, d_group, accumulate != 0};
    const zoo::KGroupedOperands<zoo::Tile> operands{a,
                                                    b,
                                                    a_scale,
                                                    b_scale,
                                                    {a_scale_bytes, 1, a_scale_stride, M, a_scale_is_ue8m0 != 0},
                                                    {b_scale_bytes, 1, b_scale_stride, N, b_scale_is_ue8m0 != 0}};
    const zoo::KGroupedSchedule<zoo::Tile, Variant::BAND> schedule(offsets, groups, M, N, accumulate != 0);
    reinterpret_cast<zoo::Pipeline*>(memory)->run(schedule, operands, target);
    zoo::wait_until_stores_have_read();
}
