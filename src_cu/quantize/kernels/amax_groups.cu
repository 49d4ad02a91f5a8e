// quantize.amax.m_grouped_contiguous: max|x| of every group of rows. Made of:
//
//   amax.cuh                       which elements a warp reads, how groups are found, how maxima are combined
//   scales/tensor_scale.cuh        the NVFP4 tensor scale of an amax
//   common/grid_maximum.cuh        how CTAs combine maxima in one launch

#include "quantize/amax.cuh"

// x_stride counts elements.
extern "C" __global__ void __launch_bounds__(Variant::THREADS, Variant::CTAS) ZOO_KERNEL(ZOO_PARAMETERS) {
    __shared__ int32_t ends[Variant::THREADS + 1];
    const zoo::RaggedGroups<Variant::THREADS> ragged = {offsets, groups, ends};
    zoo::find_amax<Variant::x, Variant::THREADS, Variant::LOADS>(ragged, x, amax, tensor_scale, workspace, K, x_stride);
}
