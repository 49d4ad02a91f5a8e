// Counters of experts in shared memory, and how counts become rows. A thread adds up one expert.
//
//     of_warps       expert 0 1 2 ...        total     0 1 2 ...   read by all CTAs of the cluster
//       warp 0              | | |
//       warp 1              v v v   exclusive sums
//       ...
#pragma once

#include <cstdint>

#include "common/cluster.cuh"
#include "common/warp.cuh"

namespace zoo {

// The variable in the CTA of this rank. A cluster barrier has published it.
__device__ __forceinline__ int load_in_cta(const int* pointer, uint32_t rank) {
    int value;
    asm volatile("ld.shared::cluster.s32 %0, [%1];" : "=r"(value) : "r"(address_in_cta(pointer, rank)) : "memory");
    return value;
}

template <int EXPERTS>
struct RouteCounters {
    static constexpr int WARPS = 32, THREADS = 32 * WARPS, BATCH = 8;
    static_assert(EXPERTS <= THREADS, "a thread adds up one expert");
    static_assert(WARPS == 32, "a warp adds up the warps: one lane for each");

    int of_warps[WARPS][EXPERTS];  // the choices of each warp; then those of the warps before it
    int total[EXPERTS];            // the choices of this CTA
    int first_row[EXPERTS];        // of the choices of this CTA
    int end[EXPERTS], padded_end[EXPERTS];
    int rows_of_warp[WARPS];  // of the experts that this warp's threads add up

    __device__ __forceinline__ void add_up_warps(int experts) {
        const int expert = threadIdx.x;
        if (expert >= experts) return;
        int sum = 0;
#pragma unroll
        for (int first = 0; first < WARPS; first += BATCH) {
            int counts[BATCH];
#pragma unroll
            for (int i = 0; i < BATCH; i++) counts[i] = of_warps[first + i][expert];
#pragma unroll
            for (int i = 0; i < BATCH; i++) {
                of_warps[first + i][expert] = sum;
                sum += counts[i];
            }
        }
        total[expert] = sum;
    }

    // Called by all threads after a cluster barrier; ends with a CTA barrier. The kernel ends with wait_for_cluster(). CTA 0 of the
    // grid stores the ends of the experts. Returns the end of the last expert.
    __device__ __forceinline__ int place_experts(int experts, int padding, int* offsets, int* counts) {
        const int expert = threadIdx.x, lane = threadIdx.x % 32, warp = threadIdx.x / 32;
        const uint32_t rank = cluster_rank(), size = cluster_size();
        int before = 0, all = 0;
        if (expert < experts) {
#pragma unroll 8
            for (uint32_t other = 0; other < size; other++) {
                const int count = load_in_cta(total + expert, other);
                before += other < rank ? count : 0;
                all += count;
            }
        }
        const int padded = (all + padding - 1) & -padding;
        const int sum = sum_of_lanes_up_to_this(padded);
        if (lane == 31) rows_of_warp[warp] = sum;
        __syncthreads();
        arrive_at_cluster();  // this CTA has read the totals of others
        const int sums = sum_of_lanes_up_to_this(rows_of_warp[lane]);
        const int rows_before = __shfl_sync(0xFFFFFFFF, sums, max(warp - 1, 0));
        const int start = (warp == 0 ? 0 : rows_before) + sum - padded;
        if (expert < experts) {
            first_row[expert] = start + before;
            end[expert] = start + all;
            padded_end[expert] = start + padded;
            if (blockIdx.x == 0) {
                offsets[expert] = start + padded;
                if (counts != nullptr) counts[expert] = all;
            }
        }
        __syncthreads();
        return __shfl_sync(0xFFFFFFFF, sums, 31);
    }
};

}  // namespace zoo
