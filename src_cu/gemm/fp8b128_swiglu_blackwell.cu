// gemm.fp8b128.{dense, m_grouped_contiguous, m_grouped_masked}.{swiglu, swiglu_fp8b128} on Blackwell: gated_blocks.cuh. Which of the groupings
// below it is, is known when it is launched. Roles, rings and tiles are those of fp8b128_groups_blackwell.cu.
//
//     INDEXED     groups are
//     0           back to back: `groups` has the row after each one's last; or in places of `rows` rows: how many of them are used, where
//                 null is all of them (one matrix has one place)
//     1           wherever they begin: `groups` has the group of each row

#include "gemm/block_scaled/chosen.cuh"
#include "gemm/block_scaled/gated_blocks.cuh"

namespace zoo {

using Tile = TileOf<Variant>;
constexpr int DYNAMIC_SHARED_BYTES = sizeof(Tile);

// Back to back, or each in its place.
struct GroupsOfEither {
    const int* numbers;
    int rows;  // of a place
    bool in_places;

    __device__ __forceinline__ void find(int group, int& begin, int& end) const {
        if (in_places) {
            begin = group * rows;
            end = begin + (numbers == nullptr ? rows : numbers[group]);
        } else {
            begin = group > 0 ? numbers[group - 1] : 0;
            end = numbers[group];
        }
    }
    __device__ __forceinline__ int scale_tiles(int) const { return 0; }  // scales are where their strides say
};
using Places = ManyMatrices<Tile, GroupsOfEither>;
using Order = GatedSquares<Tile, std::conditional_t<Variant::INDEXED != 0, IndexedRows<Tile>, Places>>;
using Copies = std::conditional_t<Tile::SWAPPED, Elements<Tile>, GatedElements<Tile>>;

// `right_box`: rows of A that a copy brings where tokens are few.
template <class T = Copies>
__device__ __forceinline__ T copies_of(const TensorMap& a, const TensorMap& b, int up_rows, int right_box) {
    return T{a, b, Tile::SWAPPED ? right_box : up_rows};
}
template <class T = Order>
__device__ __forceinline__ T order_of(const int* groups, int count, int rows, bool in_places, const GateRows& gates,
                                      ShareOfLines share) {
    if constexpr (Variant::INDEXED != 0)
        return T{{groups, rows, gates.I, BLOCK_OF_RESULT, share.lines}, gates};
    else
        return T{Places{{groups, rows, in_places}, count, gates.I, BLOCK_OF_RESULT, share}, gates};
}

}  // namespace zoo

// rows: of A, or of a place. I: columns of the result.
extern "C" __global__ void __launch_bounds__(zoo::THREADS_OF_ROLES, 1)
    ZOO_KERNEL(const __grid_constant__ zoo::TensorMap a, const __grid_constant__ zoo::TensorMap b, const uint8_t* a_scale,
               const uint8_t* b_scale, int a_scale_is_ue8m0, int b_scale_is_ue8m0, int64_t a_scale_group, int64_t a_scale_row,
               int64_t a_scale_block, int64_t b_scale_group, int64_t b_scale_row, int64_t b_scale_block, const int* groups,
               int count, int rows, int in_places, int I, int K, int interleaved, int right_box, int splits, int asks,
               const float* row_scale, uint8_t* d, int64_t d_stride, int quantises, float* scales, int64_t scales_group,
               int64_t scales_row, int64_t scales_block, int64_t pow2) {
    using namespace zoo;
    extern __shared__ __align__(1024) uint8_t memory[];
    Tile& tile = *reinterpret_cast<Tile*>(memory);
    const ShareOfLines share{tiles_of(K, Tile::Kind::ELEMENTS_A_LINE), splits, splits > 1 ? int(cluster_rank()) : 0};
    const int rows_of_place = in_places ? rows : 0;
    const GateRows gates{I, interleaved != 0};
    const Order order = order_of(groups, count, rows, in_places != 0, gates, share);
    const Copies copies = copies_of(a, b, interleaved ? 0 : I, right_box);
    const ScalesByHand<Tile, RowsOfGates> scales_of_both{{a_scale, a_scale_is_ue8m0, a_scale_group, a_scale_row, a_scale_block},
                                                         {b_scale, b_scale_is_ue8m0, b_scale_group, b_scale_row, b_scale_block},
                                                         RowsOfGates(rows_of_place, gates)};
    const BlocksOfResult to{d,        d_stride, I, quantises != 0, scales, scales_group, scales_row, scales_block, rows_of_place,
                            pow2 != 0};
    const Finish finish{nullptr, 0, Stored::bf16, nullptr, 0, {nullptr, 0}, 0, nullptr, {nullptr, 0}, 0};
    const Epilogue epilogue{to, row_scale, {finish, {Gate::silu, 0}, I, interleaved != 0}};
    compute(tile, order, copies, scales_of_both, K, share, epilogue, asks != 0);
}
