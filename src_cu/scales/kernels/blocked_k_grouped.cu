// scales.blocked.k_grouped: plain scales of groups of columns to tiles of 128 x 4. Every group is a matrix of its own.
//
//     scales/column_tiles.cuh   which columns does a tile hold, and how do they pass through shared memory?

#include "scales/column_tiles.cuh"

extern "C" __global__ void __launch_bounds__(Variant::THREADS, Variant::CTAS) ZOO_KERNEL(ZOO_PARAMETERS) {
    zoo::columns_to_blocked<Variant::THREADS, Variant::TILES>(zoo::ColumnGroups{offsets, groups, block}, scales, blocked, rows,
                                                              column_tiles, scales_stride);
}
