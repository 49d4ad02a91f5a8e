// experts.route: sorts the choices of tokens by expert, stably, in one launch. The cost is latency, so no phase waits for memory twice,
// and no sort is needed: a choice's row is a sum of three counts.
//
//     choices       warp 0 of CTA 0 | warp 1 of CTA 0 | ... | warp 31 of the last CTA      contiguous shares of a cluster's warps
//
//     row of a choice = choices before it in its warp's share, of its expert      Round::ranks, in registers
//                     + choices of the warps before, of its expert, in this CTA   RouteCounters::of_warps
//                     + first row of the expert, and choices of the CTAs before   RouteCounters::first_row
//
// Every cluster counts all choices, so clusters need not wait for each other. Cluster c writes the rows of warps c, c + clusters, ...:
// stores to scattered rows take a multiprocessor longer than all the counting.
//
//     route/share.cuh      Which choices does a warp have, and what is the rank of each among equals?
//     route/counters.cuh   How do counts become rows?
//
// Phases:  load ids and rank them | CTA barrier | add up warps | cluster barrier | place experts | CTA barrier | write rows
// A share that exceeds the registers is read twice. Its ranks wait in `rows`.

#include "common/cluster.cuh"
#include "common/dependent_launch.cuh"
#include "experts/route/counters.cuh"
#include "experts/route/share.cuh"

namespace zoo {

using Counters = RouteCounters<Variant::EXPERTS>;
constexpr int DYNAMIC_SHARED_BYTES = sizeof(Counters);

}  // namespace zoo

extern "C" __global__ void __launch_bounds__(zoo::Counters::THREADS) ZOO_KERNEL(ZOO_PARAMETERS) {
    using namespace zoo;
    extern __shared__ __align__(16) uint8_t memory[];
    Counters& counters = *reinterpret_cast<Counters*>(memory);
    let_next_kernel_launch();
    const int lane = threadIdx.x % 32, warp = cluster_rank() * Counters::WARPS + threadIdx.x / 32;
    const int clusters = gridDim.x / cluster_size(), cluster = blockIdx.x / cluster_size();
    const bool writes = warp % clusters == cluster;
    int* own = counters.of_warps[threadIdx.x / 32];
    for (int expert = lane; expert < experts; expert += 32) own[expert] = 0;
    __syncwarp();
    wait_for_previous_kernel();

    const Ids all_ids = {ids, ids_are_i64 != 0, first, experts};
    const int begin = warp * share, end = min(begin + share, choices);
    const bool fits = share <= Round::CHOICES;
    Round round;
#pragma unroll 1
    for (int start = begin; start < end; start += Round::CHOICES) {
        round.load(all_ids, start, end);
        if (fits && writes && row_weights != nullptr) round.load_weights(weights, start, end);
        round.rank(own, start, end);
        if (!fits && writes) round.store_ranks(rows, start, end);
    }
    __syncthreads();
    counters.add_up_warps(experts);
    synchronise_cluster();
    const int used = counters.place_experts(experts, padding, offsets, counts);

#pragma unroll 1
    for (int start = begin; writes && start < end; start += Round::CHOICES) {
        if (!fits) {
            round.load(all_ids, start, end);
            round.load_ranks(rows, start, end);
            if (row_weights != nullptr) round.load_weights(weights, start, end);
        }
#pragma unroll
        for (int i = 0; i < Round::PER_LANE; i++) {
            const int choice = Round::choice(start, i);
            if (choice >= end) continue;
            const int expert = round.expert[i];
            const int row = expert < 0 ? -1 : counters.first_row[expert] + own[expert] + round.ranks[i];
            rows[choice] = row;
            if (expert < 0) continue;
            index[row] = uint32_t(choice) / uint32_t(top_k);
            if (row_weights != nullptr) row_weights[row] = round.weight[i];
        }
    }

    auto leave_empty = [&](int row) {
        index[row] = -1;
        if (row_weights != nullptr) row_weights[row] = 0;
    };
    const int warp_of_grid = blockIdx.x * Counters::WARPS + threadIdx.x / 32, warps = gridDim.x * Counters::WARPS;
    if (padding > 1)
        for (int expert = warp_of_grid; expert < experts; expert += warps)
            for (int row = counters.end[expert] + lane; row < counters.padded_end[expert]; row += 32) leave_empty(row);
    for (int64_t row = int64_t(used) + warp_of_grid * 32 + lane; row < all_rows; row += warps * 32) leave_empty(row);
    wait_for_cluster();
}
