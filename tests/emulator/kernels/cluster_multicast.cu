// Clusters: two CTAs share B. D (f32, M x N) = A (bf16, M x K) * B (bf16, N x K)^T, 128 x 64 of D per cluster.
//
//                 CTA rank 0                     CTA rank 1
//    A            its own 64 rows                its own 64 rows
//    B            loads rows 0..31  ----+----    loads rows 32..63       each half is multicast: it lands at the same offset
//                 has rows 0..63        +--->    has rows 0..63          in both CTAs and signals full[s] of both
//
// So full[s] of each CTA expects its A, its half of B and the other's half. And a producer overwrites B in *both* CTAs, so it
// must hear from the consumers of both: empty[s] counts CLUSTER * CONSUMER_WARPS arrivals, half of them remote (mapa + arrive on the
// other CTA's shared memory).
//
// Cluster barriers: one before the first remote access (both CTAs run, barriers are initialised), one at the end (nobody may
// exit while the other still sends it arrivals or data).
#include "common/cluster.cuh"
#include "common/mbarrier.cuh"
#include "common/pair_copy.cuh"
#include "common/tensor_copy.cuh"
#include "common/wgmma.cuh"

#include "aligned.cuh"
#include "wgmma_bf16.cuh"

using namespace zoo;

constexpr int CLUSTER = 2;
constexpr int TILE_M = 64, TILE_N = 64, TILE_K = 64;
constexpr int STAGES = 2;
constexpr int CONSUMER_WARPS = 4;
constexpr int THREADS = (CONSUMER_WARPS + 1) * 32;

constexpr uint32_t A_BYTES = TILE_M * TILE_K * 2, B_BYTES = TILE_N * TILE_K * 2;
constexpr uint32_t B_PART_BYTES = B_BYTES / CLUSTER;
constexpr uint32_t STAGE_BYTES = A_BYTES + CLUSTER * B_PART_BYTES;  // expected by each CTA's full[s]
constexpr uint32_t EMPTY_ARRIVALS = CLUSTER * CONSUMER_WARPS;
static_assert(B_PART_BYTES % 1024 == 0, "each part of B starts on a swizzle repeat");
constexpr uint32_t SHARED_BYTES = STAGES * STAGE_BYTES + 1024;
static_assert(SHARED_BYTES == 33792, "the launch asks for this much");
static_assert(THREADS == 160, "the launch uses this many");

// One arrival on the same barrier of that CTA, of release at cluster scope: this warp's reads of the stage are over before that CTA's
// producer learns that it may be refilled.
__device__ __forceinline__ void publish_in_cta(Barrier* barrier, uint32_t rank) {
    asm volatile("mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%0];" ::"r"(address_in_cta(barrier, rank)) : "memory");
}

extern "C" __global__ void __cluster_dims__(1, CLUSTER, 1) __launch_bounds__(THREADS)
    cluster_multicast(const __grid_constant__ TensorMap map_a, const __grid_constant__ TensorMap map_b, float* d, int m, int n,
                      int k) {
    extern __shared__ uint8_t dynamic[];
    __shared__ Barrier full[STAGES], empty[STAGES];
    uint8_t* tiles = align_1024(dynamic);
    const uint32_t rank = cluster_rank();
    const int row = blockIdx.y * TILE_M, column = blockIdx.x * TILE_N;
    const int k_tiles = (k + TILE_K - 1) / TILE_K;

    if (threadIdx.x == 0) {
        for (int i = 0; i < STAGES; i++) {
            initialise(&full[i], 1);
            initialise(&empty[i], EMPTY_ARRIVALS);
        }
    }
    synchronise_cluster();

    Ring<STAGES> ring;
    if (threadIdx.x / 32 == CONSUMER_WARPS) {
        // Producer.
        if (elected()) {
            for (int tile = 0; tile < k_tiles; tile++, ring.advance()) {
                uint8_t* a = tiles + ring.stage * STAGE_BYTES;
                uint8_t* b_part = a + A_BYTES + rank * B_PART_BYTES;
                wait_for_published<CLUSTER>(&empty[ring.stage], ring.parity ^ 1);
                arrive_expecting_bytes(&full[ring.stage], STAGE_BYTES);
                load_box(a, map_a, tile * TILE_K, row, &full[ring.stage]);
                load_box_to_all(b_part, map_b, tile * TILE_K, column + rank * (TILE_N / CLUSTER), &full[ring.stage],
                                (1 << CLUSTER) - 1);
            }
        }
        __syncwarp();
    } else {
        // Consumers: one warpgroup.
        float accumulator[TILE_N / 2];
        for (int tile = 0; tile < k_tiles; tile++, ring.advance()) {
            const uint8_t* a = tiles + ring.stage * STAGE_BYTES;
            wait(&full[ring.stage], ring.parity);
            hold(accumulator);
            fence_registers();
#pragma unroll
            for (int step = 0; step < TILE_K / 16; step++)
                multiply_bf16<0, 0>(accumulator, matrix_descriptor(a + step * 32), matrix_descriptor(a + A_BYTES + step * 32),
                                    tile > 0 || step > 0);
            commit_multiplications();
            wait_for_multiplications<0>();
            hold(accumulator);
            if (threadIdx.x % 32 < CLUSTER) publish_in_cta(&empty[ring.stage], threadIdx.x % 32);  // lane i tells CTA i
        }
#pragma unroll
        for (int j = 0; j < TILE_N / 2; j += 2) {
            const int r = row + accumulator_row(j), c = column + accumulator_column(j);
            if (r < m && c < n)
                *reinterpret_cast<float2*>(&d[static_cast<size_t>(r) * n + c]) = {accumulator[j], accumulator[j + 1]};
        }
    }
    synchronise_cluster();
}
