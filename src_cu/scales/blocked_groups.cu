// scales.blocked.m_grouped_contiguous: plain scales of ragged groups of rows -> tiles of 128 x 4, every group from a tile
// of its own on. See blocked.cuh.

#include "common/variant.cuh"
#include "scales/blocked.cuh"

extern "C" __global__ void __launch_bounds__(Variant::THREADS)
    ZOO_KERNEL(const uint8_t* scales, const int32_t* offsets, uint8_t* blocked, int64_t tiles, int64_t columns, int64_t stride,
               int32_t groups) {
    zoo::to_blocked<Variant::THREADS>(zoo::RowGroups{offsets, groups}, scales, blocked, tiles, columns, stride);
}
