// Units of work that CTAs claim by tickets and mark as ready, in a workspace that may hold anything before.
#pragma once

#include <cstdint>

#include "common/global_words.cuh"

namespace zoo {

struct Claims {
    uint32_t* words;

    __device__ __forceinline__ uint32_t* beat() const { return words; }
    __device__ __forceinline__ uint32_t* seen() const { return words + 1; }
    __device__ __forceinline__ uint32_t* next() const { return words + 2; }
    __device__ __forceinline__ uint32_t* ready(int64_t unit) const { return words + 4 + unit; }
};

// By a warp of each CTA, before any of its threads claims. CTA 0 clears, `say` tells its other warps, and it changes `beat` until all other CTAs
// have seen it change.
__device__ __forceinline__ void begin_claims(const Claims& claims, int units, int lane, const auto& say) {
    if (blockIdx.x > 0) {
        if (lane == 0) {
            const uint32_t before = load_relaxed(claims.beat());
            while (load_acquire(claims.beat()) == before) __nanosleep(50);
            atomicAdd(claims.seen(), 1);
            say();
        }
        return;
    }
    const uint32_t seen_before = load_relaxed(claims.seen());
    uint32_t now = load_relaxed(claims.beat());
    if (lane == 0) *claims.next() = 0;
    for (int unit = lane; unit < units; unit += 32) *claims.ready(unit) = 0;
    __threadfence();
    __syncwarp();
    if (lane > 0) return;
    say();
    // More have seen it where a second launch has the workspace, too: neither may wait for ever.
    do store_release(claims.beat(), ++now);
    while (load_relaxed(claims.seen()) - seen_before < gridDim.x - 1);
}

}  // namespace zoo
