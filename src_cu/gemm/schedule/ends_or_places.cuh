// Groups of rows one after the other or each in its place, as the launch says, so that one cubin serves both.
#pragma once

#include "gemm/schedule/tile_order.cuh"

namespace zoo {

// Rows of a group: the first of a place of `rows`; or, where that is 0, between two ends.
struct EndsOrPlaces {
    const int* places;
    int rows;

    __device__ __forceinline__ void find(int group, int& begin, int& end) const {
        int room = rows;
        asm volatile("" : "+r"(room));  // or either of both has a loop over groups of its own
        if (room == 0) return OneAfterTheOther{places}.find(group, begin, end);
        return EachInItsPlace{places, room}.find(group, begin, end);
    }
};

}  // namespace zoo
