// quantize.amax: max|x| of a whole matrix. Memory-bound. Made of:
//
//   amax.cuh                       which elements a warp reads, how maxima are combined
//   scales/tensor_scale.cuh        the NVFP4 tensor scale of an amax
//   common/grid_maximum.cuh        how CTAs combine maxima in one launch

#include "quantize/amax.cuh"

// x_stride counts elements. The launch passes a contiguous matrix as one long row.
extern "C" __global__ void __launch_bounds__(Variant::THREADS, Variant::CTAS) ZOO_KERNEL(ZOO_PARAMETERS) {
    zoo::find_amax<Variant::x, Variant::THREADS, Variant::LOADS>(zoo::OneGroup{static_cast<uint32_t>(M)}, x, amax, tensor_scale,
                                                                 workspace, K, x_stride);
}
