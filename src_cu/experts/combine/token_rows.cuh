// The rows that ROWS choices of a token have, and the weights of these choices. A lane loads one choice, then all lanes get all rows by
// shuffles: the loads of the rows can follow each other at once. Called by whole warps.
#pragma once

#include <cstdint>

#include "common/global_memory.cuh"
#include "common/half.cuh"

namespace zoo {

template <int ROWS>
class TokenRows {
    static_assert(ROWS <= 32, "a choice a lane");

   public:
    int row[ROWS];  // -1 for a choice that is dropped. Equal in all lanes.

    // Choices first ... first + ROWS - 1 of a token. `rows` and `weights` point to the token's first choice; `weights` may be null.
    // Choices from `count` on are dropped.
    __device__ __forceinline__ TokenRows(const int* rows, const float* weights, int first, int count) {
        const int choice = first + int(threadIdx.x % 32);
        int row_of_lane = -1;
        if (choice < count) {
            row_of_lane = rows[choice];
            if (weights != nullptr) weight_of_lane = weights[choice];
        }
#pragma unroll
        for (int j = 0; j < ROWS; j++) row[j] = __shfl_sync(0xFFFFFFFF, row_of_lane, j);
    }

    __device__ __forceinline__ float weight(int j) const { return __shfl_sync(0xFFFFFFFF, weight_of_lane, j); }

   private:
    float weight_of_lane = 1;
};

// 16-bit floats that a lane loads or stores at a time.
constexpr int CELL = 8;

// Rounds a cell to Dtype and stores it.
template <class Dtype>
__device__ __forceinline__ void store_cell(uint16_t* target, const float (&values)[CELL]) {
    uint32_t words[CELL / 2];
#pragma unroll
    for (int i = 0; i < CELL / 2; i++) words[i] = encode_two<Dtype>(values[2 * i], values[2 * i + 1]);
    store_16_bytes(target, words);
}

}  // namespace zoo
