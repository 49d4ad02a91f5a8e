// Hopper, two consumer warpgroups: D (bf16, M x N) = A (bf16, M x K) * B (bf16, N x K)^T.
//
// One CTA computes 128 x 64. Warpgroups 0 and 1 own 64 rows each and share B; warpgroup 2 feeds them and gives its registers away.
//
//    A stage  +----------------+ 64 rows -> warpgroup 0        a row is 64 bf16 = 128 bytes = one swizzle line
//             |                | 64 rows -> warpgroup 1
//             +----------------+                               the mma of the tile before is still running while the next
//    B stage  +----------------+ 64 rows -> both               one is issued: stage s is released one tile later
//             +----------------+
//
// full[s]: 1 arrival and A_BYTES + B_BYTES; empty[s]: one arrival per consumer warpgroup. One thread may speak for its four warps: an mma
// is one operation of the warpgroup, so when one warp has waited for it, all of them have read the stage.
#include "common/mbarrier.cuh"
#include "common/registers.cuh"
#include "common/tensor_copy.cuh"
#include "common/wgmma.cuh"

#include "aligned.cuh"
#include "wgmma_bf16.cuh"

using namespace zoo;

constexpr int TILE_M = 128, TILE_N = 64, TILE_K = 64;
constexpr int STAGES = 3;
constexpr int CONSUMER_GROUPS = TILE_M / 64;
constexpr int THREADS = (CONSUMER_GROUPS + 1) * 128;

constexpr uint32_t A_BYTES = TILE_M * TILE_K * 2, B_BYTES = TILE_N * TILE_K * 2;
constexpr uint32_t STAGE_BYTES = A_BYTES + B_BYTES;
constexpr uint32_t EMPTY_ARRIVALS = CONSUMER_GROUPS;
static_assert(TILE_K * 2 == 128, "a row is exactly one 128-byte swizzle line");
static_assert(A_BYTES % 1024 == 0 && B_BYTES % 1024 == 0, "every tile starts on a swizzle repeat");
constexpr uint32_t SHARED_BYTES = STAGES * STAGE_BYTES + 1024;
static_assert(SHARED_BYTES == 74752, "the launch asks for this much");
static_assert(THREADS == 384, "the launch uses this many");

// The lower column goes into the lower half.
__device__ __forceinline__ uint32_t pack_bf16(float low, float high) {
    uint32_t packed;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(packed) : "f"(high), "f"(low));
    return packed;
}

extern "C" __global__ void __launch_bounds__(THREADS, 1)
    wgmma_bf16_gemm(const __grid_constant__ TensorMap map_a, const __grid_constant__ TensorMap map_b, uint16_t* d, int m, int n,
                    int k) {
    extern __shared__ uint8_t dynamic[];
    __shared__ Barrier full[STAGES], empty[STAGES];
    uint8_t* tiles = align_1024(dynamic);
    const int row = blockIdx.y * TILE_M, column = blockIdx.x * TILE_N;
    const int k_tiles = (k + TILE_K - 1) / TILE_K;
    const int group = warpgroup_index();

    if (threadIdx.x == 0) {
        for (int i = 0; i < STAGES; i++) {
            initialise(&full[i], 1);
            initialise(&empty[i], EMPTY_ARRIVALS);
        }
    }
    __syncthreads();

    Ring<STAGES> ring;
    if (group == CONSUMER_GROUPS) {
        // Producer: needs few registers.
        lower_registers_to<40>();
        if (threadIdx.x == CONSUMER_GROUPS * 128) {
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

    raise_registers_to<232>();
    float accumulator[TILE_N / 2];
    uint32_t previous = 0;  // the stage whose mma may still be running
    for (int tile = 0; tile < k_tiles; tile++, ring.advance()) {
        const uint8_t* a = tiles + ring.stage * STAGE_BYTES + group * 64 * TILE_K * 2;
        const uint8_t* b = tiles + ring.stage * STAGE_BYTES + A_BYTES;
        wait(&full[ring.stage], ring.parity);
        hold(accumulator);
        fence_registers();
#pragma unroll
        for (int step = 0; step < TILE_K / 16; step++)  // 16 values of K = 32 bytes per instruction
            multiply_bf16<0, 0>(accumulator, matrix_descriptor(a + step * 32), matrix_descriptor(b + step * 32),
                                tile > 0 || step > 0);
        commit_multiplications();
        wait_for_multiplications<1>();  // the tile before is done, this one runs on
        if (tile > 0 && threadIdx.x % 128 == 0) arrive(&empty[previous]);
        previous = ring.stage;
    }
    wait_for_multiplications<0>();
    hold(accumulator);

#pragma unroll
    for (int j = 0; j < TILE_N / 2; j += 2) {
        const int r = row + group * 64 + accumulator_row(j), c = column + accumulator_column(j);
        if (r < m && c < n)
            *reinterpret_cast<uint32_t*>(&d[static_cast<size_t>(r) * n + c]) = pack_bf16(accumulator[j], accumulator[j + 1]);
    }
}
