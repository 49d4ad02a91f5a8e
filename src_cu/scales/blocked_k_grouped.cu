// scales.blocked.k_grouped: plain scales of groups of columns -> tiles of 128 x 4, every group a matrix of its own. See
// column_tiles.cuh.

#include "common/variant.cuh"
#include "scales/column_tiles.cuh"

extern "C" __global__ void __launch_bounds__(Variant::THREADS, Variant::CTAS)
    ZOO_KERNEL(const uint8_t* scales, const int32_t* offsets, uint8_t* blocked, int64_t rows, int64_t column_tiles,
               int64_t stride, int32_t groups, int32_t block) {
    zoo::columns_to_blocked<Variant::THREADS, Variant::TILES>(zoo::ColumnGroups{offsets, groups, block}, scales, blocked, rows,
                                                              column_tiles, stride);
}
