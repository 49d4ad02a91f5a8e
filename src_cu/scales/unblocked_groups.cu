// scales.unblocked.m_grouped_contiguous: tiles of 128 x 4, every group from a tile of its own on -> plain scales of the
// rows that belong to a group. See blocked.cuh.

#include "common/variant.cuh"
#include "scales/blocked.cuh"

extern "C" __global__ void __launch_bounds__(Variant::THREADS)
    ZOO_KERNEL(const uint8_t* blocked, const int32_t* offsets, uint8_t* scales, int64_t columns, int64_t stride, int32_t groups) {
    zoo::from_blocked<Variant::THREADS>(zoo::RowGroups{offsets, groups}, blocked, scales, columns, stride);
}
