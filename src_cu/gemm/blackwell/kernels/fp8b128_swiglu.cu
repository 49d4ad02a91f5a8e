// gemm.fp8b128.{dense, m_grouped_contiguous, m_grouped_masked}.{swiglu, swiglu_fp8b128} on Blackwell: SwiGLU, in bf16, or in e4m3 with scales. The
// launch chooses between groupings where it can:
//
//     INDEXED     groups
//     0           follow each other: `groups` has the row after each group's last; or have slots of `rows` rows: `groups` has how many of them
//                 each group uses, and null means all (one matrix is one slot)
//     1           are rows with equal groups: `groups` has the group of each row, or -1
//
//     schedule/grouped_tiles.cuh       where is tile `index`, and in which group? (schedule/tiles.cuh, gemm/schedule/tile_schedule.cuh: one matrix)
//     tile.cuh                         what does a CTA hold in shared and tensor memory, and which barriers guard it?
//     pipeline.cuh                     which warp does what, and which tile comes next?
//     load/elements.cuh                how do K blocks get into shared memory?
//     fp8b128/scales.cuh               how do their scales get there?
//     mainloop.cuh                     how are they multiplied?
//     gated/gates_and_ups.cuh          what is h? (gemm/epilogue/activation.cuh)
//     fp8b128/gated_tiles.cuh          which rows of B are a tile's gates and ups, and where are their scales?
//     epilogue/sums.cuh                how do sums get from tensor memory into registers?
//     epilogue/shared_sums.cuh         how do sums of few tokens get there, and how do CTAs add up shares of K?
//     fp8b128/gated_epilogue.cuh       how does h become bf16, or e4m3 and scales? (epilogue/finish.cuh)

#include "gemm/blackwell/fp8b128/gated_epilogue.cuh"
#include "gemm/blackwell/load/elements.cuh"
#include "gemm/blackwell/schedule/grouped_tiles.cuh"

namespace zoo {

using Tile = TileOf<Variant>;
constexpr int DYNAMIC_SHARED_BYTES = sizeof(Tile);

// The launch chooses, and one cubin serves both.
struct LaunchedGroups {
    const int* groups;
    int rows;  // of a slot
    bool in_slots;

    __device__ __forceinline__ void find(int group, int& begin, int& end) const {
        if (in_slots) {
            begin = group * rows;
            end = begin + (groups == nullptr ? rows : groups[group]);
        } else {
            begin = group > 0 ? groups[group - 1] : 0;
            end = groups[group];
        }
    }
    __device__ __forceinline__ int scale_tiles(int) const { return 0; }  // strides say where scales are
};
using MatrixTiles = GroupedTiles<Tile, LaunchedGroups>;
using Tiles = Fp8b128GatedTiles<Tile, std::conditional_t<Variant::INDEXED != 0, IndexedTiles<Tile>, MatrixTiles>>;
using Elements = std::conditional_t<Tile::SWAPPED, ElementLoader<Tile>, GatedElementLoader<Tile>>;

// `up_rows` as in GatedElementLoader, `box_rows` as in ElementLoader.
template <class T = Elements>
__device__ __forceinline__ T elements_of(const TensorMap& a, const TensorMap& b, int up_rows, int box_rows) {
    return T{a, b, Tile::SWAPPED ? box_rows : up_rows};
}
template <class T = Tiles>
__device__ __forceinline__ T tiles_of(const int* groups, int count, int rows, bool in_slots, const GateRows& gates,
                                      KShare share) {
    if constexpr (Variant::INDEXED != 0)
        return T{{groups, rows, gates.I, RESULT_BLOCK, share.blocks}, gates};
    else
        return T{MatrixTiles{{groups, rows, in_slots}, count, gates.I, RESULT_BLOCK, share}, gates};
}

}  // namespace zoo

// A has `rows` rows, or a slot of masked groups. The result has I columns. One TMA copy loads box_rows rows of MMA operand B.
extern "C" __global__ void __launch_bounds__(zoo::THREADS, 1) ZOO_KERNEL(ZOO_PARAMETERS) {
    using namespace zoo;
    extern __shared__ __align__(1024) uint8_t memory[];
    Tile& tile = *reinterpret_cast<Tile*>(memory);
    const KShare share{ceil_div(K, Tile::Format::K_BLOCK_ELEMENTS), splits, splits > 1 ? int(cluster_rank()) : 0};
    const int slot_rows = in_slots ? rows : 0;
    const int interleaved = int(gate_layout);
    const GateRows gates{I, interleaved != 0};
    const Tiles tiles = tiles_of(groups, count, rows, in_slots != 0, gates, share);
    const Elements elements = elements_of(a, b, interleaved ? 0 : I, box_rows);
    const Fp8b128ScaleLoader<Tile, GatedScales> scale_loader{
        {a_scale, a_scale_is_ue8m0, a_scale_group, a_scale_row, a_scale_block},
        {b_scale, b_scale_is_ue8m0, b_scale_group, b_scale_row, b_scale_block},
        GatedScales(slot_rows, gates)};
    const Fp8b128Result to{d,          d_stride,     I,         quantises != 0,          scales, scales_group,
                           scales_row, scales_block, slot_rows, ChosenFp8b128(pow2 != 0)};
    const Finish finish{.bias = {bias, bias_is_bf16}, .bias_stride = 2 * I};
    const Fp8b128GatedEpilogue epilogue{to, row_scale, {finish, {activation, limit}, I, interleaved != 0}};
    compute_result(tile, tiles.tiles, tiles, share, elements, scale_loader, E4M3_TYPES, K, epilogue,
                   walk_of(persistent != 0, groups != nullptr));
}
