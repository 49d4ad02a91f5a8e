// A queue of work that fills a workspace: a unit is rows to gather, or weights to dequantize. The queue does not order tiles of D.
//
// CTAs draw units by tickets, and mark filled units as ready. The first contents of the workspace are arbitrary. Included by kernels that dequantize
// weights to a workspace. gather/gather_to_workspace.cuh uses the same words.
#pragma once

#include <cstdint>

#include "common/global_words.cuh"

namespace zoo {

struct TicketQueue {
    uint32_t* words;

    __device__ __forceinline__ uint32_t* generation() const { return words; }
    __device__ __forceinline__ uint32_t* acknowledged() const { return words + 1; }  // counts CTAs
    __device__ __forceinline__ uint32_t* next_ticket() const { return words + 2; }
    __device__ __forceinline__ uint32_t* ready(int64_t unit) const { return words + 4 + unit; }
};

// A warp of each CTA calls this before any thread draws a ticket. CTA 0 clears the words, then keeps changing `generation` until
// all other CTAs have acknowledged a change. `opened` tells the CTA's other warps.
__device__ __forceinline__ void open_queue(const TicketQueue& queue, int units, int lane, const auto& opened) {
    if (blockIdx.x > 0) {
        if (lane == 0) {
            const uint32_t before = load_relaxed(queue.generation());
            while (load_acquire(queue.generation()) == before) __nanosleep(50);
            atomicAdd(queue.acknowledged(), 1);
            opened();
        }
        return;
    }
    const uint32_t acknowledged_before = load_relaxed(queue.acknowledged());
    uint32_t generation = load_relaxed(queue.generation());
    if (lane == 0) *queue.next_ticket() = 0;
    for (int unit = lane; unit < units; unit += 32) *queue.ready(unit) = 0;
    __threadfence();
    __syncwarp();
    if (lane > 0) return;
    opened();
    // The count is higher where a second launch uses the workspace at once. The comparison by < keeps both launches from waiting for ever.
    do store_release(queue.generation(), ++generation);
    while (load_relaxed(queue.acknowledged()) - acknowledged_before < gridDim.x - 1);
}

}  // namespace zoo
