// quantize.amax.m_grouped_contiguous: max|x| of every group of rows. See amax.cuh.

#include "common/variant.cuh"
#include "quantize/amax.cuh"

// x_stride in elements.
extern "C" __global__ void __launch_bounds__(Variant::THREADS, Variant::CTAS)
ZOO_KERNEL(const uint8_t* x, const int32_t* offsets, uint32_t* amax, uint32_t* workspace, int64_t K, int64_t x_stride,
           int32_t groups) {
    zoo::find_amax<Variant::x, Variant::THREADS, Variant::LOADS>(zoo::RaggedGroups{offsets, groups}, x, amax, workspace, K,
                                                                 x_stride);
}
