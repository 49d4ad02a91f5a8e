// scales.blocked: plain scales of one byte -> tiles of 128 x 4. See blocked.cuh.

#include "common/variant.cuh"
#include "scales/blocked.cuh"

extern "C" __global__ void __launch_bounds__(Variant::THREADS)
    ZOO_KERNEL(const uint8_t* scales, uint8_t* blocked, int64_t rows, int64_t columns, int64_t stride) {
    zoo::to_blocked<Variant::THREADS>(zoo::WholeMatrix{rows}, scales, blocked, (rows + 127) / 128, columns, stride);
}
