// A warp's share of the choices, and the rank of each choice among the earlier choices of its expert in the share.
//
// A round is 32 x PER_LANE choices, neighbours on neighbouring lanes. Lanes with equal experts find each other by match.any. The first of
// them adds their number to the warp's own counter, so no atomic is needed and the order is that of the choices:
//
//     choices     3 1 3 3 ...    lanes 0, 2, 3 have expert 3
//     ranks       c c' c+1 c+2   c: counter of expert 3 before
#pragma once

#include <cstdint>

namespace zoo {

// The ids of all choices. Experts count from 0; -1 is a dropped choice.
struct Ids {
    const void* ids;
    bool are_i64;
    int first, experts;

    __device__ __forceinline__ int expert_of(int64_t id) const {
        const uint64_t expert = uint64_t(id) - uint64_t(first);
        return expert < uint64_t(experts) ? int(expert) : -1;
    }
};

struct Round {
    static constexpr int PER_LANE = 8, CHOICES = 32 * PER_LANE;
    int expert[PER_LANE], ranks[PER_LANE];
    float weight[PER_LANE];

    static __device__ __forceinline__ int choice(int start, int i) { return start + 32 * i + int(threadIdx.x % 32); }

    // Choices from `end` on are dropped.
    __device__ __forceinline__ void load(const Ids& all, int start, int end) {
        if (all.are_i64) {
            const int64_t* ids = static_cast<const int64_t*>(all.ids);
#pragma unroll
            for (int i = 0; i < PER_LANE; i++) expert[i] = choice(start, i) < end ? all.expert_of(ids[choice(start, i)]) : -1;
        } else {
            const int32_t* ids = static_cast<const int32_t*>(all.ids);
#pragma unroll
            for (int i = 0; i < PER_LANE; i++) expert[i] = choice(start, i) < end ? all.expert_of(ids[choice(start, i)]) : -1;
        }
    }

    __device__ __forceinline__ void load_weights(const float* weights, int start, int end) {
#pragma unroll
        for (int i = 0; i < PER_LANE; i++) weight[i] = choice(start, i) < end ? weights[choice(start, i)] : 0;
    }

    // `counters`: of this warp, one for each expert.
    __device__ __forceinline__ void rank(int* counters, int start, int end) {
        const uint32_t lanes_before = (1u << threadIdx.x % 32) - 1;
        uint32_t equal[PER_LANE];
#pragma unroll
        for (int i = 0; i < PER_LANE; i++)
            if (start + 32 * i < end) equal[i] = __match_any_sync(0xFFFFFFFF, expert[i]);
#pragma unroll
        for (int i = 0; i < PER_LANE; i++) {
            if (start + 32 * i >= end) continue;
            const int before = expert[i] < 0 ? 0 : counters[expert[i]];
            ranks[i] = before + __popc(equal[i] & lanes_before);
            __syncwarp();
            if (expert[i] >= 0 && (equal[i] & lanes_before) == 0) counters[expert[i]] = before + __popc(equal[i]);
            __syncwarp();
        }
    }

    __device__ __forceinline__ void store_ranks(int* target, int start, int end) const {
#pragma unroll
        for (int i = 0; i < PER_LANE; i++)
            if (choice(start, i) < end) target[choice(start, i)] = ranks[i];
    }

    __device__ __forceinline__ void load_ranks(const int* source, int start, int end) {
#pragma unroll
        for (int i = 0; i < PER_LANE; i++) ranks[i] = choice(start, i) < end ? source[choice(start, i)] : 0;
    }
};

}  // namespace zoo
