// Schedules of GEMMs with packed 4-bit weights. One cubin serves one matrix, contiguous groups and masked groups: the launch chooses.
// Included by packed.cu, unpromoted.cu, dequantized.cu and bf16.cu.
#pragma once

#include <type_traits>

#include "gemm/schedule/grouped_schedule.cuh"
#include "gemm/schedule/tile_schedule.cuh"

namespace zoo {

// One matrix, whose K is split or not.
template <class Tile, int TOKENS, int SPLITS, int BAND, class Rows = RowTiles<Tile, TOKENS>>
using DenseOrSplitKSchedule =
    std::conditional_t<(SPLITS > 1), SplitKSchedule<Tile, SPLITS, Rows>, DenseSchedule<Tile, BAND, Rows>>;

// Makes a schedule from kernel parameters. `rows` is the rows of the only matrix or of a slot, or 0 where groups are contiguous.
template <class Schedule>
__device__ __forceinline__ Schedule schedule_of(const int* ends_or_counts, int groups, int rows, int box_rows, int N,
                                                int blocks) {
    if constexpr (requires { Schedule(rows, N, blocks); })
        return Schedule(rows, N, blocks);
    else if constexpr (requires { Schedule(GroupRows{ends_or_counts, rows}, groups, box_rows, N, blocks); })
        return Schedule(GroupRows{ends_or_counts, rows}, groups, box_rows, N, blocks);
    else
        return Schedule(GroupRows{ends_or_counts, rows}, groups, N, blocks);
}

// One matrix (ends_or_counts is null) or groups. The constructor treats one matrix as a group that the walk has already found, so next() reads no
// memory. Tiles of 96 tokens and more have box_rows rows each: the launch makes tiles of one matrix equally high, as EvenTiles do.
template <class Tile, int BAND>
struct MatrixOrGroupsSchedule : GroupedScheduleFor<Tile, Tile::TOKENS, BAND, GroupRows> {
    using Grouped = GroupedScheduleFor<Tile, Tile::TOKENS, BAND, GroupRows>;
    static constexpr bool EVEN = Tile::TOKENS >= 96;

    int box_rows;

    __device__ __forceinline__ MatrixOrGroupsSchedule(GroupRows rows_of, int count, int box_rows, int N, int blocks)
        : Grouped(rows_of, count, N, blocks), box_rows(box_rows) {
        if (rows_of.ends_or_counts != nullptr) return;
        if constexpr (requires { this->find_one(rows_of.rows); }) {
            this->find_one(rows_of.rows);
        } else {
            this->first_group = 0;
            this->end = rows_of.rows;
            this->own_end_index = this->end_index = ceil_div(rows_of.rows, Tile::TOKENS) * this->columns;
        }
    }

    __device__ __forceinline__ bool next(Work& work) {
        if (!Grouped::next(work)) return false;
        if constexpr (EVEN) {  // a branch would make ptxas assume that lanes diverge
            const bool is_one = this->groups.ends_or_counts == nullptr;
            work.token = is_one ? work.token / Tile::TOKENS * box_rows : work.token;
            work.end_token = min(work.end_token, is_one ? work.token + box_rows : work.end_token);
        }
        return true;
    }
};

// What a variant multiplies. Tables name the values of the constant GROUPING.
enum class Grouping {
    matrix,            // one matrix, which may split K
    matrix_or_groups,  // one matrix or groups, as the launch chooses
    groups,
};

// The schedule of a variant of packed weights, by its constants GROUPING, SPLITS and BAND.
template <class V, class Tile>
using ScheduleFor = std::conditional_t<
    Grouping(V::GROUPING) == Grouping::matrix, DenseOrSplitKSchedule<Tile, V::TOKENS, V::SPLITS, V::BAND>,
    std::conditional_t<Grouping(V::GROUPING) == Grouping::matrix_or_groups, MatrixOrGroupsSchedule<Tile, V::BAND>,
                       GroupedScheduleFor<Tile, V::TOKENS, V::BAND, GroupRows>>>;

}  // namespace zoo
