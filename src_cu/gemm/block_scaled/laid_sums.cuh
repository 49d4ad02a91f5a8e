// Few tokens: from sums to results that neighbouring weights make together. Sums are laid down in shared memory, where the stages of a
// product that is over were; then a warp takes a token, adds up what the CTAs that share K have of it, in their order, and has its
// weights side by side, four a lane:
//
//     products, tokens x 128 weights      | first | second |      the second: ups, where they are half of the weights
//     a lane's four of each                 gggg    uuuu   or     gugu
#pragma once

#include "common/cluster.cuh"
#include "gemm/block_scaled/results.cuh"
#include "gemm/block_scaled/store.cuh"

namespace zoo {

template <class Tile>
struct LaidSums {
    static constexpr int WARPS = THREADS_OF_ROLES / 32, FOUR = LANES / 32;
    static_assert(FOUR == 4);
    float sums[2][Tile::COLUMNS][LANES];
    static_assert(Tile::SWAPPED && sizeof(sums) <= sizeof(Tile::stages));

    __device__ __forceinline__ static LaidSums& of(Tile& tile) { return *reinterpret_cast<LaidSums*>(tile.stages); }

    __device__ __forceinline__ void lay_down(const ScaledWork& work, int product, int lane, int first,
                                             const float (&values)[Tile::CHUNK]) {
#pragma unroll
        for (int i = 0; i < Tile::CHUNK; i++)
            if (first + i < work.rows) sums[product][first + i][lane] = values[i];
    }

    // What all CTAs have of a token's weights 4 lane, 4 lane + 1, ...
    __device__ __forceinline__ void collect(int product, int token, int splits, float (&four)[4]) const {
        const float* place = &sums[product][token][threadIdx.x % 32 * 4];
        load_four(place, 0, splits, four);
#pragma unroll 1
        for (int i = 1; i < splits; i++) {
            float part[4];
            load_four(place, i, splits, part);
#pragma unroll
            for (int j = 0; j < 4; j++) four[j] = __fadd_rn(four[j], part[j]);
        }
    }

    // After all CTAs have laid down theirs: `what(token)` for each that is this warp's, rows of padding included if asked.
    template <class What>
    __device__ __forceinline__ void for_tokens(const ScaledWork& work, bool pads, int split, int splits, What what) const {
        const int tokens = pads ? SCALE_TILE_ROWS : work.rows;
#pragma unroll 1
        for (int token = split * WARPS + int(threadIdx.x) / 32; token < tokens; token += splits * WARPS) what(token);
    }

   private:
    __device__ __forceinline__ static void load_four(const float* place, uint32_t rank, int splits, float (&v)[4]) {
        if (splits == 1) {
            const float4 own = *reinterpret_cast<const float4*>(place);
            v[0] = own.x, v[1] = own.y, v[2] = own.z, v[3] = own.w;
        } else {
            asm volatile("ld.shared::cluster.v4.f32 {%0, %1, %2, %3}, [%4];"
                         : "=f"(v[0]), "=f"(v[1]), "=f"(v[2]), "=f"(v[3])
                         : "r"(address_in_cta(place, rank))
                         : "memory");
        }
    }
};

}  // namespace zoo
