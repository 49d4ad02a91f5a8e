// Cluster launch control (sm_100): a running cluster takes the place of one of its grid that has not been launched yet, which then
// never is. The answer is 16 bytes in shared memory, which a barrier counts. After one that says no, nobody may ask again.
#pragma once

#include <cstdint>

#include "common/mbarrier.cuh"

namespace zoo {

struct alignas(16) LaunchAnswer {
    uint64_t words[2];
};
static_assert(sizeof(LaunchAnswer) == 16, "what a barrier must expect");

// By one thread of a cluster of one CTA.
__device__ __forceinline__ void ask_for_a_cluster(LaunchAnswer* answer, Barrier* answered) {
    asm volatile("clusterlaunchcontrol.try_cancel.async.shared::cta.mbarrier::complete_tx::bytes.b128 [%0], [%1];" ::"r"(
                     shared_address(answer)),
                 "r"(shared_address(answered))
                 : "memory");
}

// By one thread of one CTA: all CTAs of its cluster get the answer, each counts it on its own barrier. None of them may have ended.
__device__ __forceinline__ void ask_for_a_cluster_for_all(LaunchAnswer* answer, Barrier* answered) {
    asm volatile(
        "clusterlaunchcontrol.try_cancel.async.shared::cta.mbarrier::complete_tx::bytes.multicast::cluster::all.b128 [%0], [%1];" ::
            "r"(shared_address(answer)),
        "r"(shared_address(answered))
        : "memory");
}

// blockIdx.x of the first CTA of the cluster whose place was taken, or -1: there is none left.
__device__ __forceinline__ int first_block_of(const LaunchAnswer* answer) {
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
