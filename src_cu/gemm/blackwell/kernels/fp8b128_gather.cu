// gemm.fp8b128.m_grouped_gather on Blackwell: contiguous groups of rows of D, each with a B of its own. Row i of D reads row index[i] of A, and
// of A's scales.
//
//     schedule/grouped_tiles.cuh      where is tile `index`, and in which group? (schedule/tiles.cuh, gemm/schedule/tile_schedule.cuh: one matrix)
//     tile.cuh                        what does a CTA hold in shared and tensor memory, and which barriers guard it?
//     pipeline.cuh                    which warp does what, and which tile comes next?
//     load/gathered_elements.cuh      how do rows of A through an index, and rows of B, get into shared memory?
//     fp8b128/scales.cuh              how do their scales get there? (below: through the index)
//     mainloop.cuh                    how are they multiplied?
//     epilogue/sums.cuh               how do sums get from tensor memory into registers?
//     epilogue/finish.cuh             how do sums become elements of D?
//     epilogue/store_d.cuh            which lanes store which elements of D?

#include "gemm/blackwell/epilogue/store_d.cuh"
#include "gemm/blackwell/fp8b128/scales.cuh"
#include "gemm/blackwell/load/gathered_elements.cuh"
#include "gemm/blackwell/schedule/grouped_tiles.cuh"

namespace zoo {

using Tile = GatheringTile<TileOf<Variant>>;
constexpr int DYNAMIC_SHARED_BYTES = sizeof(Tile);

struct GatheredTokenScales : SquareWeightScales {
    RowIndex index;
    __device__ __forceinline__ int64_t token_offset(const ScaleMatrix& scales, const TileWork& work, int token) const {
        const int row = index.of(work, token);
        return row < 0 ? -1 : row * scales.row;
    }
};

}  // namespace zoo

// A has `rows` rows. A tile has `weights` columns of D.
extern "C" __global__ void __launch_bounds__(zoo::THREADS, 1) ZOO_KERNEL(ZOO_PARAMETERS) {
    using namespace zoo;
    extern __shared__ __align__(1024) uint8_t memory[];
    Tile& tile = *reinterpret_cast<Tile*>(memory);
    const RowIndex row_index{index, rows};
    const GatheredElementLoader<Tile> elements{a, b, row_index, {Tile::WEIGHTS}};
    const Fp8b128ScaleLoader<Tile, GatheredTokenScales> scales{
        {a_scale, a_scale_is_ue8m0, 0, a_scale_row, a_scale_block},
        {b_scale, b_scale_is_ue8m0, b_scale_group, b_scale_row, b_scale_block},
        {{}, row_index}};
    const Finish finish{.d = d, .d_stride = d_stride, .dtype = d_type, .row_scale = row_scale};
    const KShare share{ceil_div(K, Tile::Format::K_BLOCK_ELEMENTS)};
    const GroupedTiles<Tile, ContiguousGroups> tiles{{offsets}, count, N, weights, share};
    Pipeline<Tile> pipeline{tile, Tile::CTAS, walk_of(persistent != 0, true)};
    pipeline.run(tiles, elements, scales, E4M3_TYPES, K, StoreD<Tile>{tile, finish, pipeline});
    pipeline.free_tensor_memory();
}
