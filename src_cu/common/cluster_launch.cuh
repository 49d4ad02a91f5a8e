// Cluster launch control (sm_100): a running cluster cancels the launch of a pending cluster of its grid and does its work.
//
// The answer is 16 bytes in shared memory, and a barrier counts them. After an answer -1 the kernel may not request again.
#pragma once

#include <cstdint>

#include "common/mbarrier.cuh"

namespace zoo {

struct alignas(16) LaunchAnswer {
    uint64_t words[2];
};
static_assert(sizeof(LaunchAnswer) == 16, "what a barrier must expect");

// Called by one thread of a cluster of one CTA.
__device__ __forceinline__ void request_next_cluster(LaunchAnswer* answer, Barrier* answered) {
    asm volatile("clusterlaunchcontrol.try_cancel.async.shared::cta.mbarrier::complete_tx::bytes.b128 [%0], [%1];" ::"r"(
                     shared_address(answer)),
                 "r"(shared_address(answered))
                 : "memory");
}

// Called by one thread of one CTA. All CTAs of the cluster get the answer and count it on their own barriers; none may have ended.
__device__ __forceinline__ void request_next_cluster_for_all(LaunchAnswer* answer, Barrier* answered) {
    asm volatile(
        "clusterlaunchcontrol.try_cancel.async.shared::cta.mbarrier::complete_tx::bytes.multicast::cluster::all.b128 [%0], [%1];" ::
            "r"(shared_address(answer)),
        "r"(shared_address(answered))
        : "memory");
}

// blockIdx.x of the first CTA of the cancelled cluster, or -1 if no cluster is pending.
__device__ __forceinline__ int first_cta_of(const LaunchAnswer* answer) {
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
        : "r"(shared_address(answer))
        : "memory");
    return index;
}

}  // namespace zoo
