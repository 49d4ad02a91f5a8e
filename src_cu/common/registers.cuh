// setmaxnreg: warpgroups of a CTA reallocate registers. Producers lower their number, then math warps raise theirs.
//
// Every warp of a warpgroup executes the instruction, in one branch of the kernel.
#pragma once

namespace zoo {

template <int REGISTERS>
__device__ __forceinline__ void lower_registers_to() {
    static_assert(REGISTERS % 8 == 0 && REGISTERS >= 24 && REGISTERS <= 256);
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(REGISTERS));
}

template <int REGISTERS>
__device__ __forceinline__ void raise_registers_to() {
    static_assert(REGISTERS % 8 == 0 && REGISTERS >= 24 && REGISTERS <= 256);
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(REGISTERS));
}

}  // namespace zoo
