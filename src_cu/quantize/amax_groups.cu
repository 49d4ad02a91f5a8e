// quantize.amax.m_grouped_contiguous: max|x| of every group of rows. See amax.cuh.

#include "common/variant.cuh"
#include "quantize/amax.cuh"

// x_stride in elements.
extern "C" __global__ void __launch_bounds__(Variant::THREADS, Variant::CTAS)
    ZOO_KERNEL(const uint8_t* x, const int32_t* offsets, uint32_t* amax, float* tensor_scale, uint32_t* workspace, int64_t K,
               int64_t x_stride, int32_t groups) {
    __shared__ int32_t ends[Variant::THREADS + 1];
    const zoo::RaggedGroups<Variant::THREADS> ragged = {offsets, groups, ends};
    zoo::find_amax<Variant::x, Variant::THREADS, Variant::LOADS>(ragged, x, amax, tensor_scale, workspace, K, x_stride);
}
