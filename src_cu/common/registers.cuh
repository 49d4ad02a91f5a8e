// Registers change hands between the warpgroups of a CTA (setmaxnreg): all begin with the same number, some give some
// back, others then take them. By every warp of a warpgroup, in one branch of the kernel.
#pragma once

namespace zoo {

template <int REGISTERS>
__device__ __forceinline__ void keep_registers() {
    static_assert(REGISTERS % 8 == 0 && REGISTERS >= 24 && REGISTERS <= 256);
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(REGISTERS));
}

template <int REGISTERS>
__device__ __forceinline__ void take_registers() {
    static_assert(REGISTERS % 8 == 0 && REGISTERS >= 24 && REGISTERS <= 256);
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(REGISTERS));
}

}  // namespace zoo
