// Hopper, MN-major operands: D (f32, M x N) = A^T * B with A (bf16, K x M) and B (bf16, K x N), K *not* contiguous.
//
// For 16-bit types wgmma reads an operand whose contiguous dimension is M or N. TMA brings 64 of M (128 bytes) x TILE_K rows:
//
//            64 of M (or N) = 128 bytes                 what the descriptor says
//           +---------------------------+
//     k 0   |                           |  8 rows       stride  = 1024: from 8 values of K to the next 8
//     ...   |  128-byte swizzle         |  = 1024 B     leading = ATOM_BYTES: from 64 of M or N to the next 64
//     k 7   |                           |
//           +---------------------------+
//     k 8   |          ...              |               16 values of K (one mma) are two groups of 8 rows,
//                                                       the next mma starts 2048 bytes further
//
// TILE_M is 128 here: two atoms side by side, one per mma; TILE_N is 64: one atom.
#include "common/mbarrier.cuh"
#include "common/pair_copy.cuh"
#include "common/tensor_copy.cuh"
#include "common/wgmma.cuh"

#include "aligned.cuh"
#include "wgmma_bf16.cuh"

using namespace zoo;

constexpr int TILE_M = 128, TILE_N = 64, TILE_K = 32;
constexpr int STAGES = 2;
constexpr int CONSUMER_WARPS = 4;
constexpr int THREADS = (CONSUMER_WARPS + 1) * 32;

constexpr uint32_t ATOM_BYTES = 64 * TILE_K * 2;  // 64 of M or N, all of TILE_K
constexpr uint32_t A_BYTES = (TILE_M / 64) * ATOM_BYTES, B_BYTES = (TILE_N / 64) * ATOM_BYTES;
constexpr uint32_t STAGE_BYTES = A_BYTES + B_BYTES;
static_assert(ATOM_BYTES % 1024 == 0, "every atom starts on a swizzle repeat");
constexpr uint32_t SHARED_BYTES = STAGES * STAGE_BYTES + 1024;
static_assert(SHARED_BYTES == 25600, "the launch asks for this much");
static_assert(THREADS == 160, "the launch uses this many");

__device__ __forceinline__ uint64_t mn_major_128b(const uint8_t* start) {
    return matrix_descriptor(start) | static_cast<uint64_t>(ATOM_BYTES >> 4) << 16;
}

extern "C" __global__ void __launch_bounds__(THREADS)
    wgmma_mn_major(const __grid_constant__ TensorMap map_a, const __grid_constant__ TensorMap map_b, float* d, int m, int n,
                   int k) {
    extern __shared__ uint8_t dynamic[];
    __shared__ Barrier full[STAGES], empty[STAGES];
    uint8_t* tiles = align_1024(dynamic);
    const int row = blockIdx.y * TILE_M, column = blockIdx.x * TILE_N;
    const int k_tiles = (k + TILE_K - 1) / TILE_K;

    if (threadIdx.x == 0) {
        for (int i = 0; i < STAGES; i++) {
            initialise(&full[i], 1);
            initialise(&empty[i], CONSUMER_WARPS);
        }
    }
    __syncthreads();

    Ring<STAGES> ring;
    if (threadIdx.x / 32 == CONSUMER_WARPS) {
        // Producer: one box per atom; coordinate 0 is M or N, coordinate 1 is K.
        if (elected()) {
            for (int tile = 0; tile < k_tiles; tile++, ring.advance()) {
                uint8_t* a = tiles + ring.stage * STAGE_BYTES;
                wait(&empty[ring.stage], ring.parity ^ 1);
                arrive_expecting_bytes(&full[ring.stage], STAGE_BYTES);
                for (int atom = 0; atom < TILE_M / 64; atom++)
                    load_box(a + atom * ATOM_BYTES, map_a, row + atom * 64, tile * TILE_K, &full[ring.stage]);
                load_box(a + A_BYTES, map_b, column, tile * TILE_K, &full[ring.stage]);
            }
        }
        return;
    }

    float accumulator[TILE_M / 64][TILE_N / 2];
    for (int tile = 0; tile < k_tiles; tile++, ring.advance()) {
        const uint8_t* a = tiles + ring.stage * STAGE_BYTES;
        wait(&full[ring.stage], ring.parity);
        for (auto& half : accumulator) hold(half);
        fence_registers();
#pragma unroll
        for (int half = 0; half < TILE_M / 64; half++)
#pragma unroll
            for (int step = 0; step < TILE_K / 16; step++)
                multiply_bf16<1, 1>(accumulator[half], mn_major_128b(a + half * ATOM_BYTES + step * 2048),
                                    mn_major_128b(a + A_BYTES + step * 2048), tile > 0 || step > 0);
        commit_multiplications();
        wait_for_multiplications<0>();
        for (auto& half : accumulator) hold(half);
        if (threadIdx.x % 32 == 0) arrive(&empty[ring.stage]);
    }

#pragma unroll
    for (int half = 0; half < TILE_M / 64; half++)
#pragma unroll
        for (int j = 0; j < TILE_N / 2; j += 2) {
            const int r = row + half * 64 + accumulator_row(j), c = column + accumulator_column(j);
            if (r < m && c < n)
                *reinterpret_cast<float2*>(&d[static_cast<size_t>(r) * n + c]) = {accumulator[half][j], accumulator[half][j + 1]};
        }
}
