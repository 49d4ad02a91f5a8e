// scales.blocked.m_grouped_contiguous: plain scales of ragged groups of rows to tiles of 128 x 4. Every group starts at a new tile.
//
//     scales/row_tiles.cuh   which rows does a tile hold?
//     scales/square.cuh      how does a thread load, transpose and store 16 x 16 bytes?
//     scales/blocked.cuh     which square does a thread move, and where to?

#include "scales/blocked.cuh"

extern "C" __global__ void __launch_bounds__(Variant::THREADS) ZOO_KERNEL(ZOO_PARAMETERS) {
    zoo::to_blocked<Variant::THREADS>(zoo::RowGroups{offsets, groups}, scales, blocked, tiles, columns, scales_stride);
}
