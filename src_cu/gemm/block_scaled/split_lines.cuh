// Few tokens: CTAs of a cluster share the lines of K. Each lays its sums down in its own shared memory, where its stages were, and then
// adds up, in the order of the CTAs, what all have of some of the tokens.
#pragma once

#include "gemm/block_scaled/store.cuh"

namespace zoo {

template <class Tile>
struct PartialSums {
    float sums[Tile::COLUMNS][LANES];
    static_assert(Tile::SWAPPED && sizeof(sums) <= sizeof(Tile::stages));

    __device__ __forceinline__ static PartialSums& of(Tile& tile) { return *reinterpret_cast<PartialSums*>(tile.stages); }

    // A lane's sums: when a tile's products are over, nobody else uses its stages.
    __device__ __forceinline__ void lay_down(const ScaledWork& work, int lane, int first, const float (&values)[Tile::CHUNK]) {
#pragma unroll
        for (int i = 0; i < Tile::CHUNK; i++)
            if (first + i < work.rows) sums[first + i][lane] = values[i];
    }

    // After all CTAs have laid down theirs: tokens rank, rank + splits, ...
    __device__ __forceinline__ void store(const Finish& finish, const ScaledWork& work, int lane, int rank, int splits) const {
        if (lane >= work.columns) return;
        const float alpha = finish.alpha_of(work.group);
        for (int token = rank; token < work.rows; token += splits) {
            float sum = 0;
            for (int i = 0; i < splits; i++) {
                const float part = load_float_in_cta(&sums[token][lane], i);
                sum = i == 0 ? part : __fadd_rn(sum, part);
            }
            const int row = work.row + token;
            finish.store_one(sum, {row, alpha, finish.factor_of(row)}, work.group, work.column + lane);
        }
    }

   private:
    __device__ __forceinline__ static float load_float_in_cta(const float* pointer, uint32_t rank) {
        float v;
        asm volatile("ld.shared::cluster.f32 %0, [%1];" : "=f"(v) : "r"(address_in_cta(pointer, rank)) : "memory");
        return v;
    }
};

}  // namespace zoo
