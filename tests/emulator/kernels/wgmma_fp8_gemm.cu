// Hopper, the basic pipeline: D (f32, M x N) = A (e4m3, M x K) * B (e4m3, N x K)^T. Any M; N even; any K multiple of 16.
//
// One CTA computes a 64 x 64 tile of D. Four warps multiply, a fifth feeds them:
//
//              K ->                          shared memory, STAGES times:
//        +-----+-----+-----+                 A  64 rows x 128 bytes   8 KiB   (128-byte swizzle)
//    A   | 128 | 128 | 128 |  64 rows        B  64 rows x 128 bytes   8 KiB
//        +-----+-----+-----+
//        +-----+-----+-----+                 full[s]   producer -> consumers: the stage's bytes have landed
//    B   | 128 | 128 | 128 |  64 rows        empty[s]  consumers -> producer: the stage may be overwritten
//        +-----+-----+-----+
//
// Rows and columns outside the matrices arrive as zeros (TMA) and are not stored.
#include "common/mbarrier.cuh"
#include "common/pair_copy.cuh"
#include "common/tensor_copy.cuh"
#include "common/wgmma.cuh"

#include "aligned.cuh"

using namespace zoo;

constexpr int TILE_M = 64, TILE_N = 64, TILE_K = 128;
constexpr int STAGES = 3;
constexpr int CONSUMER_WARPS = 4;
constexpr int THREADS = (CONSUMER_WARPS + 1) * 32;

constexpr uint32_t A_BYTES = TILE_M * TILE_K, B_BYTES = TILE_N * TILE_K;
constexpr uint32_t STAGE_BYTES = A_BYTES + B_BYTES;  // what full[s] expects
constexpr uint32_t FULL_ARRIVALS = 1;                // the producer's expect
constexpr uint32_t EMPTY_ARRIVALS = CONSUMER_WARPS;  // one lane per consumer warp
static_assert(TILE_K == 128, "a row is exactly one 128-byte swizzle line");
static_assert(A_BYTES % 1024 == 0 && B_BYTES % 1024 == 0, "every tile starts on a swizzle repeat");
constexpr uint32_t SHARED_BYTES = STAGES * STAGE_BYTES + 1024;
static_assert(SHARED_BYTES == 50176, "the launch asks for this much");
static_assert(THREADS == 160, "the launch uses this many");

extern "C" __global__ void __launch_bounds__(THREADS)
    wgmma_fp8_gemm(const __grid_constant__ TensorMap map_a, const __grid_constant__ TensorMap map_b, float* d, int m, int n,
                   int k) {
    extern __shared__ uint8_t dynamic[];
    __shared__ Barrier full[STAGES], empty[STAGES];
    uint8_t* tiles = align_1024(dynamic);
    const int row = blockIdx.y * TILE_M, column = blockIdx.x * TILE_N;
    const int k_tiles = (k + TILE_K - 1) / TILE_K;

    if (threadIdx.x == 0) {
        for (int i = 0; i < STAGES; i++) {
            initialise(&full[i], FULL_ARRIVALS);
            initialise(&empty[i], EMPTY_ARRIVALS);
        }
    }
    __syncthreads();

    Ring<STAGES> ring;
    if (threadIdx.x / 32 == CONSUMER_WARPS) {
        // Producer.
        if (elected()) {
            for (int tile = 0; tile < k_tiles; tile++, ring.advance()) {
                uint8_t* a = tiles + ring.stage * STAGE_BYTES;
                wait(&empty[ring.stage], ring.parity ^ 1);
                arrive_expecting_bytes(&full[ring.stage], STAGE_BYTES);
                load_box(a, map_a, tile * TILE_K, row, &full[ring.stage]);
                load_box(a + A_BYTES, map_b, tile * TILE_K, column, &full[ring.stage]);
            }
        }
        return;
    }

    // Consumers: one warpgroup.
    float accumulator[TILE_N / 2];
    for (int tile = 0; tile < k_tiles; tile++, ring.advance()) {
        const uint8_t* a = tiles + ring.stage * STAGE_BYTES;
        wait(&full[ring.stage], ring.parity);
        hold(accumulator);
        fence_registers();
#pragma unroll
        for (int step = 0; step < TILE_K / 32; step++)  // 32 bytes of K per instruction
            multiply<64>(accumulator, matrix_descriptor(a + step * 32), matrix_descriptor(a + A_BYTES + step * 32),
                         tile > 0 || step > 0);
        commit_multiplications();
        wait_for_multiplications<0>();
        hold(accumulator);
        if (threadIdx.x % 32 == 0) arrive(&empty[ring.stage]);
    }

    // Epilogue: two neighbouring columns per store.
#pragma unroll
    for (int j = 0; j < TILE_N / 2; j += 2) {
        const int r = row + accumulator_row(j), c = column + accumulator_column(j);
        if (r < m && c < n) *reinterpret_cast<float2*>(&d[static_cast<size_t>(r) * n + c]) = {accumulator[j], accumulator[j + 1]};
    }
}
