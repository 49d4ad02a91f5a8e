// How many tokens of a tile are multiplied: all there is room for, or, where the tile FITS, no more than the rows that a group has there need.
#pragma once

#include "common/warp.cuh"

namespace zoo {

// Calls multiply<TURNS, COLUMNS>(sums), and makes zeros of the sums beyond. Each width has a loop over K of its own, and no two of them wgmmas
// of the same width: ptxas puts together what those have in common, and then lets no two wgmmas run at a time. Loops with scales for 1 x 128 and
// those of stored weights are long, so they are two.
template <class Tile>
__device__ __forceinline__ void multiply_as_wide_as(int rows, float (&sums)[Tile::SUMS], const auto& multiply) {
    auto at_width = [&]<int TURNS, int COLUMNS>() {
        constexpr int COUNT = TURNS * COLUMNS / 2;
        float own[COUNT], zero;
        multiply.template operator()<TURNS, COLUMNS>(own);
        asm volatile("mov.f32 %0, 0f00000000;" : "=f"(zero));  // or all zeros would be made before the loop
#pragma unroll
        for (int j = 0; j < Tile::SUMS; j++) sums[j] = j < COUNT ? own[j] : zero;
    };
    if constexpr (Tile::FITS) {
        constexpr int COLUMNS = Tile::TOKENS / Tile::TURNS;
        static_assert(Tile::TOKENS > 72 && COLUMNS != 72 && COLUMNS != 32);
        rows = same_in_all_lanes(rows);
        if (!Tile::SCALED && !Tile::STORED && rows <= 32) return at_width.template operator()<1, 32>();
        if (rows <= 72) return at_width.template operator()<1, 72>();
    }
    at_width.template operator()<Tile::TURNS, Tile::TOKENS / Tile::TURNS>();
}

}  // namespace zoo
