// scales.unblocked.k_grouped: tiles of 128 x 4, every group of columns a matrix of its own -> plain scales. See
// column_tiles.cuh.

#include "common/variant.cuh"
#include "scales/column_tiles.cuh"

extern "C" __global__ void __launch_bounds__(Variant::THREADS, Variant::CTAS)
    ZOO_KERNEL(const uint8_t* blocked, const int32_t* offsets, uint8_t* scales, int64_t rows, int64_t stride, int32_t groups,
               int32_t block) {
    zoo::columns_from_blocked<Variant::THREADS, Variant::TILES>(zoo::ColumnGroups{offsets, groups, block}, blocked, scales, rows,
                                                                stride);
}
