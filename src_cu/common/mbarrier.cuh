// mbarrier: a barrier in shared memory that counts arrivals of threads and bytes of asynchronous copies.
//
// A phase ends when all expected arrivals and bytes have come. Phases alternate in parity; the first phase has parity 0.
#pragma once

#include <cstdint>

namespace zoo {

using Barrier = uint64_t;

__device__ __forceinline__ uint32_t shared_address(const void* pointer) {
    return static_cast<uint32_t>(__cvta_generic_to_shared(pointer));
}

// Called by one thread. The fence publishes the barrier to the copy engine; other threads see it after a __syncthreads().
__device__ __forceinline__ void initialise(Barrier* barrier, uint32_t arrivals) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(barrier)), "r"(arrivals) : "memory");
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

// One arrival, which also announces the bytes of copies.
__device__ __forceinline__ void arrive_expecting_bytes(Barrier* barrier, uint32_t bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(barrier)), "r"(bytes) : "memory");
}

__device__ __forceinline__ void arrive(Barrier* barrier) {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(shared_address(barrier)) : "memory");
}

// Waits until the phase of this parity has ended. A new barrier is in phase 0, so a wait for parity 1 returns at once.
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

// A position in a ring of STAGES buffers, and the parity of the round. A consumer waits for parity at the barrier of full buffers; a
// producer waits for parity ^ 1 at the barrier of empty buffers, which is the previous round.
template <int STAGES>
struct Ring {
    uint32_t stage = 0, parity = 0;

    __device__ __forceinline__ void advance() {
        stage = stage + 1 == STAGES ? 0 : stage + 1;
        parity ^= stage == 0;
    }
};

// How a tile uses the barriers full[STAGES] and empty[STAGES] of its ring. The tile has them as members, and derives from this.
template <class Tile, int STAGES>
struct StageBarriers {
    // One thread calls this. Then all threads must synchronise.
    __device__ __forceinline__ void initialise_barriers(uint32_t full_arrivals, uint32_t empty_arrivals) {
#pragma unroll
        for (int stage = 0; stage < STAGES; stage++) {
            initialise(&tile().full[stage], full_arrivals);
            initialise(&tile().empty[stage], empty_arrivals);
        }
    }

    __device__ __forceinline__ void wait_until_empty(Ring<STAGES> ring) { wait(&tile().empty[ring.stage], ring.parity ^ 1); }
    __device__ __forceinline__ void wait_until_full(Ring<STAGES> ring) { wait(&tile().full[ring.stage], ring.parity); }

    // All lanes of a warp call this, when they have read the stage.
    __device__ __forceinline__ void release(int stage) {
        __syncwarp();
        if (threadIdx.x % 32 == 0) arrive(&tile().empty[stage]);
    }

   private:
    __device__ __forceinline__ Tile& tile() { return static_cast<Tile&>(*this); }
};

}  // namespace zoo
