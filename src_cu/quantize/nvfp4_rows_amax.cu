// quantize.nvfp4.rows.amax: quantize.nvfp4.rows whose tensor scale comes from the amax of the step before, and which finds
// the new amax in the same pass.
//
// The magnitudes of the blocks are at hand, so the new amax costs one maximum a block. CTAs stay and take several shares,
// so that they meet once, at their end; see grid_maximum.cuh.

#include "common/grid_maximum.cuh"
#include "common/variant.cuh"
#include "common/warp.cuh"
#include "quantize/nvfp4.cuh"
#include "quantize/tensor_scale.cuh"
#include "quantize/whole_blocks.cuh"

namespace zoo {

// Nvfp4 that remembers the largest amax of a block that it sees, as bits. It lives as long as its CTA.
struct Nvfp4WithAmax : Nvfp4 {
    const GridMaximum* maximum;
    uint32_t* largest;
    bool* clear;  // whether the results are, as far as this thread knows

    __device__ __forceinline__ Nvfp4WithAmax(float amax_before, const GridMaximum* maximum, uint32_t* largest, bool* clear)
        : Nvfp4(nullptr), maximum(maximum), largest(largest), clear(clear) {
        tensor_scale = nvfp4_tensor_scale(amax_before);
        inverse = __frcp_rn(tensor_scale);
    }

    // While x is under way.
    __device__ __forceinline__ void prepare() const {
        if (threadIdx.x == 0 && !*clear) *clear = maximum->is_clear();
    }
    __device__ __forceinline__ uint32_t scale_of(float amax) const {
        *largest = max(*largest, __float_as_uint(amax));
        return Nvfp4::scale_of(amax);
    }
};

}  // namespace zoo

// x_stride in elements; q_stride in bytes; scales_stride as in rows.cu. tensor_scale may be null.
extern "C" __global__ void __launch_bounds__(Variant::THREADS, Variant::CTAS)
    ZOO_KERNEL(const uint8_t* x, const float* amax_before, uint8_t* q, uint8_t* scales, uint32_t* amax, float* tensor_scale,
               uint32_t* workspace, int64_t M, int64_t K, int64_t x_stride, int64_t q_stride, int64_t scales_stride,
               uint32_t shares, int32_t plain) {
    using namespace zoo;
    constexpr int COLUMNS = Input<Variant::x>::VALUES == 4 ? 16 : 32;  // of a lane: 64 bytes of x
    const Layout layout = layout_of<uint8_t>(plain);
    __shared__ uint32_t meeting[Variant::THREADS / 32];
    let_next_kernel_launch();
    wait_for_previous_kernel();
    const float before = *amax_before;
    if (blockIdx.x == 0 && threadIdx.x == 0 && tensor_scale != nullptr) *tensor_scale = nvfp4_tensor_scale(before);
    const GridMaximum maximum(amax, 1, workspace);
    if (!GridMaximum::works()) return;

    uint32_t largest = 0;
    bool clear = false;
    const Nvfp4WithAmax format(before, &maximum, &largest, &clear);
    for (uint32_t share = GridMaximum::worker(); share < shares; share += GridMaximum::workers()) {
        quantize_whole_blocks<Variant::THREADS, COLUMNS>(layout, format, Matrix<Variant::x>{x, x_stride}, q, scales, M, K,
                                                         q_stride, scales_stride, share);
    }

    largest = group_max<32>(largest);
    if (threadIdx.x % 32 == 0) meeting[threadIdx.x / 32] = largest;
    if (threadIdx.x == 0)
        while (!clear) clear = maximum.is_clear();
    __syncthreads();
    if (threadIdx.x >= 32) return;
    largest = threadIdx.x < Variant::THREADS / 32 ? meeting[threadIdx.x] : 0;
    largest = group_max<32>(largest);
    if (threadIdx.x == 0) {
        maximum.add(0, largest);
        maximum.leave();
    }
}
