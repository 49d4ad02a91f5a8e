// Rows that say which group they are of, or -1; those of a group lie together. A tile of rows takes as many works as it has groups: one,
// but where a group ends within it. So nobody walks along the groups, however many they are.
#pragma once

#include "gemm/block_scaled/product.cuh"
#include "gemm/schedule/tile_order.cuh"

namespace zoo {

template <class Tile>
struct IndexedRows {
    static constexpr uint32_t ALL = 0xFFFFFFFF;
    static constexpr int BAND = 8;
    const int* group_of;
    int M, N, weights, lines;

    // By a whole warp. `what` may have lanes apart, so they meet before the next look at the rows.
    template <class What>
    __device__ __forceinline__ void each(int index, What what) const {
        const int down = tiles_of(M, Tile::TOKENS), along = tiles_of(N, weights);
        if (index >= down * along) return;
        const Banded<BAND> place(index, down, along);
        const int end = min((place.row + 1) * Tile::TOKENS, M);
        int row = place.row * Tile::TOKENS;
        while (true) {
            row = first_row(row, end, [](int group) { return group >= 0; });
            if (row >= end) return;
            ScaledWork work = {};
            work.group = group_of[row];
            work.token = work.row = row;
            row = first_row(row, end, [&](int group) { return group != work.group; });
            work.column = place.column * weights;
            work.weight = work.group * N + work.column;
            work.rows = row - work.row;
            work.columns = min(weights, N - work.column);
            work.end_line = lines;
            what(work);
            __syncwarp();
        }
    }

   private:
    // From `row` on, the first whose group is what is looked for, or end.
    template <class Is>
    __device__ __forceinline__ int first_row(int row, int end, Is is) const {
        for (; row < end; row += 32) {
            const int own = row + int(threadIdx.x) % 32;
            const uint32_t found = __ballot_sync(ALL, own < end && is(group_of[own]));
            if (found != 0) return row + __ffs(found) - 1;
        }
        return end;
    }
};

template <class Tile, class What>
__device__ __forceinline__ void each_work(IndexedRows<Tile>& order, int index, What what) {
    order.each(index, what);
}

}  // namespace zoo
