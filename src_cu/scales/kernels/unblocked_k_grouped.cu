// scales.unblocked.k_grouped: tiles of 128 x 4 to plain scales of groups of columns. Every group is a matrix of its own.
//
//     scales/column_tiles.cuh   which columns does a tile hold, and how do they pass through shared memory?

#include "scales/column_tiles.cuh"

extern "C" __global__ void __launch_bounds__(Variant::THREADS, Variant::CTAS) ZOO_KERNEL(ZOO_PARAMETERS) {
    zoo::columns_from_blocked<Variant::THREADS, Variant::TILES>(zoo::ColumnGroups{offsets, groups, block}, blocked, scales, rows,
                                                                scales_stride);
}
