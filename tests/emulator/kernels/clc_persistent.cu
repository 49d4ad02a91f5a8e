// Blackwell, cluster launch control: a running cluster takes over the work of one that has not been launched yet.
//
// y = 2 x, one tile of TILE values per CTA of the grid. The grid is as large as the problem; whoever is resident first keeps asking for
// more, so the hardware balances the load and no atomic counter or persistent grid size is needed:
//
//    my tile = blockIdx.x
//    loop:   one thread of the cluster asks to cancel the launch of a further cluster   (asynchronous: 16 bytes + a barrier signal)
//            all work on my tile meanwhile
//            wait for the answer: refused -> done;  granted -> my tile = first CTA of the cancelled cluster + my rank
//
// The answer is written by the async proxy and read by ordinary loads: before the next request the readers fence and everybody
// meets at a barrier. After a refusal nobody may ask again.
//
// visits[tile] counts how often a tile was done: exactly once each.
#include "common/cluster.cuh"
#include "common/cluster_launch.cuh"
#include "common/mbarrier.cuh"
#include "common/pair_copy.cuh"
#include "common/tensor_copy.cuh"

using namespace zoo;

constexpr int TILE = 64, THREADS = 64;
static_assert(TILE == THREADS, "one value per thread");

template <int CLUSTER>
__device__ __forceinline__ void persistent(const float* x, float* y, uint32_t* visits) {
    __shared__ LaunchAnswer answer;
    __shared__ Barrier answered;
    const uint32_t rank = CLUSTER > 1 ? cluster_rank() : 0;
    if (threadIdx.x == 0) {
        initialise(&answered, 1);
    }
    CLUSTER > 1 ? synchronise_cluster() : __syncthreads();

    int tile = blockIdx.x;
    uint32_t parity = 0;
    while (tile >= 0) {
        if (threadIdx.x == 0) {
            arrive_expecting_bytes(&answered, sizeof(LaunchAnswer));  // every CTA of the cluster gets the answer
            if (CLUSTER == 1) request_next_cluster(&answer, &answered);
            if (CLUSTER > 1 && rank == 0) request_next_cluster_for_all(&answer, &answered);
        }

        const int i = tile * TILE + threadIdx.x;
        y[i] = 2.0f * x[i];
        if (threadIdx.x == 0) atomicAdd(&visits[tile], 1u);

        wait_for_published<CLUSTER>(&answered, parity);
        parity ^= 1;
        const int first_cta = first_cta_of(&answer);
        tile = first_cta < 0 ? -1 : first_cta + static_cast<int>(rank);
        let_copies_see_shared_memory();  // this read of the answer before the next one is written
        CLUSTER > 1 ? synchronise_cluster() : __syncthreads();
    }
}

extern "C" __global__ void __launch_bounds__(THREADS) clc_persistent(const float* x, float* y, uint32_t* visits) {
    persistent<1>(x, y, visits);
}
extern "C" __global__ void __cluster_dims__(2, 1, 1) __launch_bounds__(THREADS)
    clc_persistent_cluster(const float* x, float* y, uint32_t* visits) {
    persistent<2>(x, y, visits);
}
