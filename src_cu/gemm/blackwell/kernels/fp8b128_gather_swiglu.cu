// gemm.fp8b128.m_grouped_gather.{swiglu, swiglu_fp8b128} on Blackwell: as fp8b128_swiglu.cu with contiguous groups, but row i of the result reads
// row index[i] of A, and of A's scales.
//
//     schedule/grouped_tiles.cuh       where is tile `index`, and in which group? (schedule/tiles.cuh, gemm/schedule/tile_schedule.cuh: one matrix)
//     tile.cuh                         what does a CTA hold in shared and tensor memory, and which barriers guard it?
//     pipeline.cuh                     which warp does what, and which tile comes next?
//     load/gathered_elements.cuh       how do K blocks get into shared memory?
//     fp8b128/scales.cuh               how do their scales get there? (below: through the index)
//     mainloop.cuh                     how are they multiplied?
//     gated/gates_and_ups.cuh          what is h? (gemm/epilogue/activation.cuh)
//     fp8b128/gated_tiles.cuh          which rows of B are a tile's gates and ups, and where are their scales?
//     epilogue/sums.cuh                how do sums get from tensor memory into registers?
//     epilogue/shared_sums.cuh         how do sums of few tokens get there?
//     fp8b128/gated_epilogue.cuh       how does h become bf16, or e4m3 and scales? (epilogue/finish.cuh)

#include "gemm/blackwell/fp8b128/gated_epilogue.cuh"
#include "gemm/blackwell/load/gathered_elements.cuh"
#include "gemm/blackwell/schedule/grouped_tiles.cuh"

namespace zoo {

using Tile = GatheringTile<TileOf<Variant>>;
constexpr int DYNAMIC_SHARED_BYTES = sizeof(Tile);

using ResultTiles = GroupedTiles<Tile, ContiguousGroups>;
using WeightBoxes = std::conditional_t<Tile::SWAPPED, OneWeightBox, SeparateWeightBoxes>;

struct GatheredGatedScales : GatedScales {
    RowIndex index;
    __device__ __forceinline__ GatheredGatedScales(GateRows gates, RowIndex index) : GatedScales(0, gates), index(index) {}
    __device__ __forceinline__ int64_t token_offset(const ScaleMatrix& scales, const TileWork& work, int token) const {
        const int row = index.of(work, token);
        return row < 0 ? -1 : row * scales.row;
    }
};

}  // namespace zoo

// A has `rows` rows. The result has I columns.
extern "C" __global__ void __launch_bounds__(zoo::THREADS, 1) ZOO_KERNEL(ZOO_PARAMETERS) {
    using namespace zoo;
    extern __shared__ __align__(1024) uint8_t memory[];
    Tile& tile = *reinterpret_cast<Tile*>(memory);
    const KShare share{ceil_div(K, Tile::Format::K_BLOCK_ELEMENTS), 1, 0};
    const int interleaved = int(gate_layout);
    const GateRows gates{I, interleaved != 0};
    const RowIndex row_index{index, rows};
    const Fp8b128GatedTiles<Tile, ResultTiles> tiles{ResultTiles{ContiguousGroups{offsets}, count, I, RESULT_BLOCK, share},
                                                     gates};
    const GatheredElementLoader<Tile, WeightBoxes> elements{a, b, row_index, {Tile::SWAPPED ? LANES : gates.step()}};
    const Fp8b128ScaleLoader<Tile, GatheredGatedScales> scale_loader{
        {a_scale, a_scale_is_ue8m0, 0, a_scale_row, a_scale_block},
        {b_scale, b_scale_is_ue8m0, b_scale_group, b_scale_row, b_scale_block},
        {gates, row_index}};
    const Fp8b128Result to{d, d_stride, I, quantises != 0, scales, 0, scales_row, scales_block, 0, ChosenFp8b128(pow2 != 0)};
    const Finish finish{.bias = {bias, bias_is_bf16}, .bias_stride = 2 * I};
    const Fp8b128GatedEpilogue epilogue{to, row_scale, {finish, {activation, limit}, I, interleaved != 0}};
    compute_result(tile, tiles.tiles, tiles, tiles.tiles.share, elements, scale_loader, E4M3_TYPES, K, epilogue,
                   walk_of(persistent != 0, true));
}
