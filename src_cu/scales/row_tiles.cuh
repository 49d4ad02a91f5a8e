// Which rows of a plain matrix belong to which row of tiles: one matrix, or groups that each start at a new tile. Offsets are read on the
// device. blocked.cuh takes WholeMatrix or RowGroups.
#pragma once

#include <cstdint>

namespace zoo {

// The rows of a tile start at `first`. `count` may be negative or above 128: the tile holds min(max(count, 0), 128) rows.
struct TileRows {
    int64_t first, count;
};

// One matrix of `rows` rows.
struct WholeMatrix {
    int64_t rows;

    template <int THREADS>
    __device__ __forceinline__ TileRows of(int64_t tile) const {
        return {tile * 128, rows - tile * 128};
    }
};

// Group g is rows offsets[g - 1] to offsets[g] - 1. It takes ceil(size / 128) tiles, which follow the tiles of group g - 1.
struct RowGroups {
    const int32_t* offsets;
    int32_t groups;

    // Called by all threads of a CTA, each with its own tile. A round searches THREADS groups: each thread counts the tiles of one group,
    // a scan adds up the counts, and each thread searches the sums in shared memory for its tile.
    template <int THREADS>
    __device__ __forceinline__ TileRows of(int64_t tile) const {
        __shared__ int32_t ends[THREADS];  // ends of the groups of this round, in tiles
        __shared__ int32_t warp_totals[THREADS / 32];
        const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
        int32_t before = 0;  // number of tiles in earlier rounds
        TileRows rows = {0, 0};
        for (int32_t round = 0; round < groups; round += THREADS) {
            const int32_t group = round + static_cast<int32_t>(threadIdx.x);
            int32_t end = 0;
            if (group < groups) end = (offsets[group] - (group ? offsets[group - 1] : 0) + 127) / 128;
#pragma unroll
            for (int distance = 1; distance < 32; distance *= 2) {
                const int32_t other = __shfl_up_sync(0xFFFFFFFF, end, distance);
                if (lane >= distance) end += other;
            }
            if (lane == 31) warp_totals[warp] = end;
            __syncthreads();
            end += before;
#pragma unroll
            for (int i = 0; i < THREADS / 32; i++) {
                if (i < warp) end += warp_totals[i];
                before += warp_totals[i];
            }
            ends[threadIdx.x] = end;
            __syncthreads();
            if (rows.count == 0 && tile < before) {
                int32_t found = 0;  // the first group that ends after the tile
#pragma unroll
                for (int step = THREADS / 2; step > 0; step /= 2)
                    if (ends[found + step - 1] <= tile) found += step;
                const int32_t group_found = round + found;
                const int32_t start = group_found ? offsets[group_found - 1] : 0;
                const int32_t stop = offsets[group_found];
                // The last tile of the group is `ends[found] - 1`. The tile of this thread is ends[found] - tile tiles before the end.
                const int64_t first = start + ((stop - start + 127) / 128 - (ends[found] - tile)) * 128;
                rows = {first, stop - first};
            }
            __syncthreads();
        }
        return rows;
    }
};

}  // namespace zoo
