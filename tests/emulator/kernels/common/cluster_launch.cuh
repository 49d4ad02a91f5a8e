// Cluster launch control (sm_100): ask for the work of a cluster of this grid that has not been launched yet.
//
// The answer is 16 opaque bytes, written into shared memory by the async proxy, with a signal of 16 bytes on an mbarrier. After an answer
// that says no, nobody may ask again.
#pragma once
#include <cstdint>
#include "address.cuh"
#include "mbarrier.cuh"

namespace cluster_launch {

struct alignas(16) Answer {
    uint64_t words[2];
};
constexpr uint32_t ANSWER_BYTES = sizeof(Answer);
static_assert(ANSWER_BYTES == 16, "what the barrier must expect");

__device__ __forceinline__ void ask(Answer* answer, mbarrier::Barrier* answered) {
    asm volatile("clusterlaunchcontrol.try_cancel.async.shared::cta.mbarrier::complete_tx::bytes.b128 [%0], [%1];" ::"r"(
                     address::shared(answer)),
                 "r"(address::shared(answered))
                 : "memory");
}

// One CTA asks, every CTA of the cluster gets the answer, at the same offset and on its own barrier.
__device__ __forceinline__ void ask_for_cluster(Answer* answer, mbarrier::Barrier* answered) {
    asm volatile(
        "clusterlaunchcontrol.try_cancel.async.shared::cta.mbarrier::complete_tx::bytes.multicast::cluster::all.b128 [%0], [%1];" ::
            "r"(address::shared(answer)),
        "r"(address::shared(answered))
        : "memory");
}

// The x index of the first CTA of the cancelled cluster, or -1 if there was none left.
__device__ __forceinline__ int first_cta(const Answer* answer) {
    int index;
    asm volatile(
        "{\n\t"
        ".reg .pred granted;\n\t"
        ".reg .b128 response;\n\t"
        "ld.shared.b128 response, [%1];\n\t"
        "clusterlaunchcontrol.query_cancel.is_canceled.pred.b128 granted, response;\n\t"
        "mov.s32 %0, -1;\n\t"
        "@granted clusterlaunchcontrol.query_cancel.get_first_ctaid::x.b32.b128 %0, response;\n\t"
        "}"
        : "=r"(index)
        : "r"(address::shared(answer))
        : "memory");
    return index;
}

}  // namespace cluster_launch
