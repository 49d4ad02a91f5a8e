// scales.unblocked: tiles of 128 x 4 -> plain scales of one byte. See blocked.cuh.

#include "common/variant.cuh"
#include "scales/blocked.cuh"

extern "C" __global__ void __launch_bounds__(Variant::THREADS)
    ZOO_KERNEL(const uint8_t* blocked, uint8_t* scales, int64_t rows, int64_t columns, int64_t stride) {
    zoo::from_blocked<Variant::THREADS>(zoo::WholeMatrix{rows}, blocked, scales, columns, stride);
}
