// scales.blocked: plain scales of one byte to tiles of 128 x 4.
//
//     scales/row_tiles.cuh   which rows does a tile hold?
//     scales/square.cuh      how does a thread load, transpose and store 16 x 16 bytes?
//     scales/blocked.cuh     which square does a thread move, and where to?

#include "scales/blocked.cuh"

extern "C" __global__ void __launch_bounds__(Variant::THREADS) ZOO_KERNEL(ZOO_PARAMETERS) {
    zoo::to_blocked<Variant::THREADS>(zoo::WholeMatrix{rows}, scales, blocked, (rows + 127) / 128, columns, scales_stride);
}
