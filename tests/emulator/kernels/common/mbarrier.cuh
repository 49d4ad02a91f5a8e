// mbarrier: a 64-bit object in shared memory that counts arrivals and bytes.
//
// A phase completes when `count` arrivals have been made AND the expected bytes have landed; then the barrier re-arms itself.
// Phases are told apart by parity: phase 0, 1, 2... have parity 0, 1, 0... wait(parity) returns when the phase of that parity
// has completed. A fresh barrier is in phase 0, so wait(1) passes at once ("the phase before the first is done") and wait(0)
// waits. That asymmetry is what lets a producer start on empty buffers: it waits for parity 1, the consumer for parity 0.
#pragma once
#include <cstdint>
#include "address.cuh"

namespace mbarrier {

using Barrier = uint64_t;

__device__ __forceinline__ void init(Barrier* barrier, uint32_t count) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(address::shared(barrier)), "r"(count) : "memory");
}

__device__ __forceinline__ void invalidate(Barrier* barrier) {
    asm volatile("mbarrier.inval.shared::cta.b64 [%0];" ::"r"(address::shared(barrier)) : "memory");
}

__device__ __forceinline__ void arrive(Barrier* barrier) {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(address::shared(barrier)) : "memory");
}

// One arrival that also announces bytes which asynchronous copies will deliver to this barrier.
__device__ __forceinline__ void arrive_expect_bytes(Barrier* barrier, uint32_t bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(address::shared(barrier)), "r"(bytes) : "memory");
}

// One arrival on the same barrier of another CTA of the cluster (distributed shared memory). Release at cluster scope:
// this CTA's reads of the buffer are over before the other CTA's producer learns that it may be refilled.
__device__ __forceinline__ void arrive_in_cta(Barrier* barrier, uint32_t cta_rank) {
    asm volatile("mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%0];" ::"r"(address::in_cta(barrier, cta_rank))
                 : "memory");
}

__device__ __forceinline__ bool try_wait(Barrier* barrier, uint32_t parity) {
    uint32_t done;
    asm volatile(
        "{\n\t"
        ".reg .pred is_done;\n\t"
        "mbarrier.try_wait.parity.shared::cta.b64 is_done, [%1], %2;\n\t"
        "selp.u32 %0, 1, 0, is_done;\n\t"
        "}"
        : "=r"(done)
        : "r"(address::shared(barrier)), "r"(parity)
        : "memory");
    return done != 0;
}

__device__ __forceinline__ void wait(Barrier* barrier, uint32_t parity) {
    while (!try_wait(barrier, parity)) {
    }
}

// As wait, when arrivals come from other CTAs of the cluster: acquire at cluster scope.
__device__ __forceinline__ void wait_cluster(Barrier* barrier, uint32_t parity) {
    uint32_t done = 0;
    while (done == 0) {
        asm volatile(
            "{\n\t"
            ".reg .pred is_done;\n\t"
            "mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 is_done, [%1], %2;\n\t"
            "selp.u32 %0, 1, 0, is_done;\n\t"
            "}"
            : "=r"(done)
            : "r"(address::shared(barrier)), "r"(parity)
            : "memory");
    }
}

// Position in a ring of STAGES buffers: which one, and the parity of its current round.
// The consumer waits for full[stage] with `parity`; the producer for empty[stage] with `parity ^ 1`.
template <int STAGES>
struct Ring {
    uint32_t stage = 0;
    uint32_t parity = 0;
    __device__ __forceinline__ void advance() {
        stage += 1;
        if (stage == STAGES) {
            stage = 0;
            parity ^= 1;
        }
    }
};

}  // namespace mbarrier
