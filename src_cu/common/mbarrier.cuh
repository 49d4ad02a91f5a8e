// mbarrier: counts arrivals and bytes of asynchronous copies in shared memory. A phase is over when all have come;
// phases alternate in parity, the first is 0.
#pragma once

#include <cstdint>

namespace zoo {

using Barrier = uint64_t;

__device__ __forceinline__ uint32_t shared_address(const void* pointer) {
    return static_cast<uint32_t>(__cvta_generic_to_shared(pointer));
}

// By one thread; the fence lets the copy engine see it. Other threads see it after a __syncthreads().
__device__ __forceinline__ void initialise(Barrier* barrier, uint32_t arrivals) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(barrier)), "r"(arrivals) : "memory");
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

// One arrival, which also announces bytes that copies will bring.
__device__ __forceinline__ void arrive_expecting_bytes(Barrier* barrier, uint32_t bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(barrier)), "r"(bytes)
                 : "memory");
}

// Until the phase of this parity is over.
__device__ __forceinline__ void wait(Barrier* barrier, uint32_t parity) {
    uint32_t over;
    do {
        asm volatile(
            "{\n\t"
            ".reg .pred over;\n\t"
            "mbarrier.try_wait.parity.shared::cta.b64 over, [%1], %2;\n\t"
            "selp.u32 %0, 1, 0, over;\n\t"
            "}"
            : "=r"(over)
            : "r"(shared_address(barrier)), "r"(parity)
            : "memory");
    } while (!over);
}

}  // namespace zoo
