// Where the scale of a block is in the output of grouped rows. Included by groups/fill_padding.cuh and
// groups/grouped_rows.cuh.
//
// scales/scale_layout.cuh draws the layouts. This version uses 32-bit arithmetic only, because grouped rows are short of
// registers.
#pragma once

#include <cstdint>

namespace zoo {

// The launch chooses between the plain layout and the other layout of the format.
template <class Format>
struct GroupScales {
    using Scale = typename Format::Scale;
    static constexpr bool BLOCKED = sizeof(Scale) == 1;  // the layout if not plain; false: mn_major
    static constexpr int BLOCK = Format::BLOCK;

    Scale* scales;
    int64_t stride;  // plain: from row to row; blocked: from one row of tiles to the next; mn_major: from block to block
    bool plain;

    __device__ __forceinline__ bool blocked() const { return BLOCKED && !plain; }

    // Scales are written for columns before this one. Blocked scales include padding.
    __device__ __forceinline__ int columns_end(int K) const { return blocked() ? (K / BLOCK + 3) / 4 * (4 * BLOCK) : K; }

    __device__ __forceinline__ Scale* at(uint32_t row, uint32_t column) const {
        const uint32_t block = column / BLOCK;
        if constexpr (BLOCKED) {
            const uint32_t in_tiles = block / 4 * 512 + row % 32 * 16 + row % 128 / 32 * 4 + block % 4;
            return scales + (plain ? row : row / 128) * stride + (plain ? block : in_tiles);
        } else {
            return scales + (plain ? row : block) * stride + (plain ? block : row);
        }
    }
};

}  // namespace zoo
