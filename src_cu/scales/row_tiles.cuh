// Which rows of a plain matrix lie in which tile of 128 rows of the blocked one: all rows, or groups of rows that each
// start a tile of their own. Offsets are read on the device.
#pragma once

#include <cstdint>

namespace zoo {

// Of a tile. `count` may be negative and more than 128: a tile has what of it lies in [0, 128).
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

// Group g is rows [offsets[g - 1], offsets[g]) and takes ceil(size / 128) tiles, after those of the groups before it.
struct RowGroups {
    const int32_t* offsets;
    int32_t groups;

    // Called by all threads of a CTA, each with the tile that it is about. A round looks at THREADS groups: every thread
    // counts the tiles of one, a scan says where they start, and all starts lie in shared memory to be searched.
    template <int THREADS>
    __device__ __forceinline__ TileRows of(int64_t tile) const {
        __shared__ int32_t ends[THREADS];  // of the round's groups, in tiles of the output
        __shared__ int32_t warp_totals[THREADS / 32];
        const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
        int32_t before = 0;  // tiles of earlier rounds
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
                // The group's last tile is `ends[found] - 1`; ours is so many before it.
                const int64_t first = start + ((stop - start + 127) / 128 - (ends[found] - tile)) * 128;
                rows = {first, stop - first};
            }
            __syncthreads();
        }
        return rows;
    }
};

}  // namespace zoo
