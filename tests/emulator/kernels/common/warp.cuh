// Who am I: one lane of a warp, one warp of a CTA.
#pragma once
#include <cstdint>

namespace warp {

// True in exactly one lane of a converged warp. Always the same lane for the same warp and mask, which matters for
// instructions whose completion is tracked per issuing thread (bulk groups, tcgen05.commit).
__device__ __forceinline__ bool elect_one() {
    uint32_t elected;
    asm volatile(
        "{\n\t"
        ".reg .pred is_elected;\n\t"
        "elect.sync _|is_elected, 0xffffffff;\n\t"
        "selp.u32 %0, 1, 0, is_elected;\n\t"
        "}"
        : "=r"(elected));
    return elected != 0;
}

// The warp's index, made uniform: every lane gets lane 0's value, so that branches on it do not diverge.
__device__ __forceinline__ uint32_t index() { return __shfl_sync(0xffffffff, threadIdx.x / 32, 0); }

__device__ __forceinline__ uint32_t lane() { return threadIdx.x % 32; }

}  // namespace warp
