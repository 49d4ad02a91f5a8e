// The schedule of a k_grouped GEMM. Persistent CTAs: every group has a D of M x N. The copying thread and the math warps walk along the groups:
// a group's first K block depends on the sizes of all groups before it.
#pragma once

#include "gemm/hopper_fp8/tile.cuh"
#include "gemm/schedule/tile_schedule.cuh"

namespace zoo {

template <class Tile, int BAND>
struct KGroupedSchedule {
    const int* ends;
    int count, M, N;   // groups; the size of D
    bool leave_empty;  // groups without columns of K get no tiles
    int index = blockIdx.x;
    int group = -1, first_k = 0, end_k = 0, first_block = 0;

    __device__ __forceinline__ KGroupedSchedule(const int* ends, int count, int M, int N, bool leave_empty)
        : ends(ends), count(count), M(M), N(N), leave_empty(leave_empty) {}

    __device__ __forceinline__ bool next(Work& work) {
        const int rows = ceil_div(M, Tile::TOKENS), columns = ceil_div(N, Tile::WEIGHTS), each = rows * columns;
        for (;; index += gridDim.x) {
            while (index >= (group + 1) * each) {
                if (++group >= count) return false;
                first_block += ceil_div(end_k - first_k, SCALE_BLOCK);
                first_k = end_k;
                end_k = ends[group];
            }
            if (!leave_empty || end_k > first_k) break;
        }
        const BandedTile<BAND> tile(index - group * each, rows, columns);
        const int end_block = first_block + ceil_div(end_k - first_k, SCALE_BLOCK);
        work = {tile.row * Tile::TOKENS, tile.column * Tile::WEIGHTS, M, group, first_block, end_block, first_k, end_k};
        index += gridDim.x;
        return true;
    }
};

}  // namespace zoo
