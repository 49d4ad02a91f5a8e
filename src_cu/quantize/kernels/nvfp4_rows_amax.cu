// quantize.nvfp4.rows.amax: quantize.nvfp4.rows with a tensor scale from the amax of the step before. The same pass finds
// the new amax. Made of:
//
//   common/formats/nvfp4.cuh       the format
//   rows/matrix.cuh                where a warp's cells come from
//   rows/whole_blocks.cuh          how a lane quantises its segment
//   scales/scale_layout.cuh        the layouts of scales, and which pieces a warp reads
//   scales/tensor_scale.cuh        the NVFP4 tensor scale of an amax
//   common/grid_maximum.cuh        how CTAs combine maxima in one launch
//
// The new amax costs one maximum for each block, because the kernel has the magnitudes of the blocks. The grid is
// persistent: a CTA quantises several shares and combines its maximum with the others once, at its end.

#include "common/formats/nvfp4.cuh"
#include "common/grid_maximum.cuh"
#include "common/variant.cuh"
#include "common/warp.cuh"
#include "quantize/rows/matrix.cuh"
#include "quantize/rows/whole_blocks.cuh"
#include "quantize/scales/tensor_scale.cuh"

namespace zoo {

// Nvfp4 that also keeps the largest amax of the blocks it sees, as bits. Its members outlive a share.
struct Nvfp4WithAmax : Nvfp4 {
    const GridMaximum* maximum;
    uint32_t* largest;
    bool* cleared;  // whether this thread has seen that the results are cleared

    __device__ __forceinline__ Nvfp4WithAmax(float amax_before, const GridMaximum* maximum, uint32_t* largest, bool* cleared)
        : Nvfp4(nullptr), maximum(maximum), largest(largest), cleared(cleared) {
        tensor_scale = nvfp4_tensor_scale(amax_before);
        inverse = __frcp_rn(tensor_scale);
    }

    // Runs while the loads of x are in flight.
    __device__ __forceinline__ void prepare() const {
        if (threadIdx.x == 0 && !*cleared) *cleared = maximum->is_clear();
    }
    __device__ __forceinline__ uint32_t scale_of(float amax) const {
        *largest = max(*largest, __float_as_uint(amax));
        return Nvfp4::scale_of(amax);
    }
};

}  // namespace zoo

// x_stride in elements; q_stride in bytes; scales_stride as in kernels/rows.cu. tensor_scale may be null.
extern "C" __global__ void __launch_bounds__(Variant::THREADS, Variant::CTAS) ZOO_KERNEL(ZOO_PARAMETERS) {
    using namespace zoo;
    constexpr int COLUMNS = Input<Variant::x>::VALUES == 4 ? 16 : 32;  // of a segment: 64 bytes of x
    const Layout layout = layout_of<uint8_t>(plain);
    __shared__ uint32_t warp_maxima[Variant::THREADS / 32];
    let_next_kernel_launch();
    wait_for_previous_kernel();
    const float before = *amax_before;
    if (blockIdx.x == 0 && threadIdx.x == 0 && tensor_scale != nullptr) *tensor_scale = nvfp4_tensor_scale(before);
    const GridMaximum maximum(amax, 1, workspace);
    if (!GridMaximum::works()) return;

    uint32_t largest = 0;
    bool cleared = false;
    const Nvfp4WithAmax format(before, &maximum, &largest, &cleared);
    for (uint32_t share = GridMaximum::worker(); share < shares; share += GridMaximum::workers()) {
        quantize_whole_blocks<Variant::THREADS, COLUMNS>(layout, format, Matrix<Variant::x>{x, x_stride}, q, scales, M, K,
                                                         q_stride, scales_stride, share);
    }

    largest = group_max<32>(largest);
    if (threadIdx.x % 32 == 0) warp_maxima[threadIdx.x / 32] = largest;
    if (threadIdx.x == 0)
        while (!cleared) cleared = maximum.is_clear();
    __syncthreads();
    if (threadIdx.x >= 32) return;
    largest = threadIdx.x < Variant::THREADS / 32 ? warp_maxima[threadIdx.x] : 0;
    largest = group_max<32>(largest);
    if (threadIdx.x == 0) {
        maximum.add(0, largest);
        maximum.leave();
    }
}
