// quantize.amax: max|x| of a whole matrix. See amax.cuh.

#include "common/variant.cuh"
#include "quantize/amax.cuh"

// x_stride in elements. A contiguous matrix comes as one long row.
extern "C" __global__ void __launch_bounds__(Variant::THREADS, Variant::CTAS)
    ZOO_KERNEL(const uint8_t* x, uint32_t* amax, float* tensor_scale, uint32_t* workspace, int64_t M, int64_t K,
               int64_t x_stride) {
    zoo::find_amax<Variant::x, Variant::THREADS, Variant::LOADS>(zoo::OneGroup{static_cast<uint32_t>(M)}, x, amax, tensor_scale,
                                                                 workspace, K, x_stride);
}
