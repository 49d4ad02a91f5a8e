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
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(barrier)), "r"(bytes) : "memory");
}

__device__ __forceinline__ void arrive(Barrier* barrier) {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(shared_address(barrier)) : "memory");
}

// Until the phase of this parity is over. Of a fresh barrier phase 0 is not over, and the one before it, of parity 1, is.
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

// Where in a ring of STAGES buffers one is, and the parity of the round. Who empties a buffer waits until it is full in
// this round, parity; who fills it, until it is empty of the round before, parity ^ 1.
template <int STAGES>
struct Ring {
    uint32_t stage = 0, parity = 0;

    __device__ __forceinline__ void advance() {
        stage = stage + 1 == STAGES ? 0 : stage + 1;
        parity ^= stage == 0;
    }
};

}  // namespace zoo
