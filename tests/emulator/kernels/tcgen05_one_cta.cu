// Blackwell, block-scaled GEMM by one CTA: D (f32, M x N) = (A * scales) (B * scales)^T for every block-scaled kind.
//
//   entry                   A, B                                       scales
//   tcgen05_mxf8f6f4        e4m3 x e4m3                                ue8m0 per 32
//   tcgen05_mxf8f6f4_e2m1   e4m3 x e2m1 (unpacked by TMA)              ue8m0 per 32
//   tcgen05_mxf4            e2m1 x e2m1                                ue8m0 per 32
//   tcgen05_mxf4nvf4        e2m1 x e2m1                                ue4m3 per 16
//
// One CTA computes 128 x 128. A stage is 128 bytes per row of A and of B in shared memory, and the scales of the same K:
//
//    A        128 rows x 128 bytes, 128-byte swizzle       16 KiB
//    B        128 rows x 128 bytes                         16 KiB
//    scales   of A, then of B: 1, 2 or 4 blocks of 512 bytes each. One block is 128 rows x 4 scales in the `blocked` layout,
//             byte (r%32)*16 + (r/32)*4 + j, which is just what cp.32x128b.warpx4 puts into 4 columns of tensor memory
//
//    tensor memory:  columns 0..127   D
//                    then per stage   4 columns per scale block of A, as many for B
//
// The scale columns belong to a stage, as the shared memory does: mma -> cp has no free ordering, but a stage is only refilled
// after empty[s], which the commit of its last mma signals.
//
// Roles: warp 0 loads, warp 1 multiplies, warp 2 owns tensor memory; then all four write D (warp w reaches lanes 32w..).
#include "common/block_scaled_mma.cuh"
#include "common/mbarrier.cuh"
#include "common/pair_copy.cuh"
#include "common/tensor_copy.cuh"
#include "common/tensor_memory.cuh"

#include "aligned.cuh"
#include "block_scaled_stage.cuh"

using namespace zoo;

constexpr int TILE_M = 128, TILE_N = 128, STAGES = 3, THREADS = 128, COLUMNS = 256;
constexpr uint32_t A_BYTES = TILE_M * ROW_BYTES, B_BYTES = TILE_N * ROW_BYTES;
constexpr uint32_t STAGE_BYTES = A_BYTES + B_BYTES + 2 * MAX_SCALE_BLOCKS * 512;
static_assert(STAGE_BYTES % 1024 == 0, "every tile starts on a swizzle repeat");
constexpr uint32_t SHARED_BYTES = STAGES * STAGE_BYTES + 1024;
static_assert(SHARED_BYTES == 111616 && THREADS == 128, "what the launch asks for");

template <MmaKind KIND, bool B_UNPACKED>
__device__ __forceinline__ void gemm(const TensorMap& map_a, const TensorMap& map_b, const uint8_t* scales_a,
                                     const uint8_t* scales_b, float* d, int m, int n, int k) {
    using Format = ScaledStage<KIND, B_UNPACKED>;
    constexpr uint32_t FULL_BYTES = A_BYTES + TILE_N * Format::B_ROW_BYTES_MOVED + 2 * Format::SCALE_BYTES;
    static_assert(TILE_N + STAGES * 2 * Format::SCALE_COLUMNS <= COLUMNS, "D and every stage's scales fit");

    extern __shared__ uint8_t dynamic[];
    __shared__ Barrier full[STAGES], empty[STAGES], accumulator_full;
    __shared__ uint32_t tensor_address;
    uint8_t* tiles = align_1024(dynamic);
    const int row = blockIdx.y * TILE_M, column = blockIdx.x * TILE_N;
    const int k_tiles = (k + Format::TILE_K - 1) / Format::TILE_K;
    const uint32_t warp_index = threadIdx.x / 32;

    if (threadIdx.x == 0) {
        for (int i = 0; i < STAGES; i++) {
            initialise(&full[i], 1);   // the loader's expect
            initialise(&empty[i], 1);  // one commit
        }
        initialise(&accumulator_full, 1);
    }
    if (warp_index == 2) allocate_columns<1, COLUMNS>(&tensor_address);
    fence_before_handing_over();
    __syncthreads();
    fence_after_taking_over();
    const uint32_t accumulator = tensor_address;

    Ring<STAGES> ring;
    if (warp_index == 0 && elected()) {
        // Loader. A row of scale blocks has k_tiles * SCALE_BLOCKS blocks, K fastest: a stage's blocks are contiguous.
        const uint8_t* row_scales_a = scales_a + static_cast<size_t>(blockIdx.y) * k_tiles * Format::SCALE_BYTES;
        const uint8_t* row_scales_b = scales_b + static_cast<size_t>(blockIdx.x) * k_tiles * Format::SCALE_BYTES;
        for (int tile = 0; tile < k_tiles; tile++, ring.advance()) {
            uint8_t* a = tiles + ring.stage * STAGE_BYTES;
            uint8_t* scales = a + A_BYTES + B_BYTES;
            wait(&empty[ring.stage], ring.parity ^ 1);
            arrive_expecting_bytes(&full[ring.stage], FULL_BYTES);
            load_box(a, map_a, tile * Format::TILE_K, row, &full[ring.stage]);
            load_box(a + A_BYTES, map_b, tile * Format::TILE_K, column, &full[ring.stage]);
            load_bytes(scales, row_scales_a + tile * Format::SCALE_BYTES, Format::SCALE_BYTES, &full[ring.stage]);
            load_bytes(scales + Format::SCALE_BYTES, row_scales_b + tile * Format::SCALE_BYTES, Format::SCALE_BYTES,
                       &full[ring.stage]);
        }
    } else if (warp_index == 1 && elected()) {
        // Multiplier: one thread issues every cp, mma and commit.
        for (int tile = 0; tile < k_tiles; tile++, ring.advance()) {
            const uint8_t* a = tiles + ring.stage * STAGE_BYTES;
            const uint8_t* b = a + A_BYTES;
            const uint8_t* scales = b + B_BYTES;
            const uint32_t scale_a = accumulator + TILE_N + ring.stage * 2 * Format::SCALE_COLUMNS;
            const uint32_t scale_b = scale_a + Format::SCALE_COLUMNS;
            wait(&full[ring.stage], ring.parity);
            fence_after_taking_over();
#pragma unroll
            for (int block = 0; block < Format::SCALE_BLOCKS; block++) {
                copy_scales<1>(scale_a + block * 4, scale_descriptor(shared_address(scales + block * 512)));
                copy_scales<1>(scale_b + block * 4, scale_descriptor(shared_address(scales + Format::SCALE_BYTES + block * 512)));
            }
#pragma unroll
            for (int i = 0; i < INSTRUCTIONS; i++) {
                const int first = i * Format::SCALES_PER_INSTRUCTION;  // this instruction's scales: byte first%4 of block first/4
                multiply<1, KIND>(
                    accumulator, operand_descriptor(shared_address(a + i * 32)), operand_descriptor(shared_address(b + i * 32)),
                    instruction_descriptor(TILE_M, TILE_N, Format::TYPE_A, Format::TYPE_B, Format::SCALES_ARE_UE8M0) |
                        scales_at_byte(first % 4),
                    scale_a + first / 4 * 4, scale_b + first / 4 * 4, tile > 0 || i > 0);
            }
            arrive_after_multiplications<1>(&empty[ring.stage]);
        }
        arrive_after_multiplications<1>(&accumulator_full);
    }
    __syncwarp();

    // Epilogue: thread t writes row t.
    wait(&accumulator_full, 0);
    fence_after_taking_over();
    const int r = row + threadIdx.x;
#pragma unroll 1
    for (int c = 0; c < TILE_N; c += 16) {
        float values[16];
        load_16_columns(values, accumulator + (warp_index * 32 << 16) + c);
        wait_for_loads();
#pragma unroll
        for (int i = 0; i < 16; i++)
            if (r < m && column + c + i < n) d[static_cast<size_t>(r) * n + column + c + i] = values[i];
    }
    fence_before_handing_over();
    __syncthreads();  // every warp has read its lanes
    if (warp_index == 2) {
        fence_after_taking_over();
        free_columns<1, COLUMNS>(accumulator);
    }
}

#define ENTRY(name, kind, b_unpacked)                                                                                          \
    extern "C" __global__ void __launch_bounds__(THREADS)                                                                      \
        name(const __grid_constant__ TensorMap map_a, const __grid_constant__ TensorMap map_b, const uint8_t* scales_a,        \
             const uint8_t* scales_b, float* d, int m, int n, int k) {                                                         \
        gemm<kind, b_unpacked>(map_a, map_b, scales_a, scales_b, d, m, n, k);                                                \
    }
ENTRY(tcgen05_mxf8f6f4, MmaKind::mxf8f6f4, false)
ENTRY(tcgen05_mxf8f6f4_e2m1, MmaKind::mxf8f6f4, true)
ENTRY(tcgen05_mxf4, MmaKind::mxf4, false)
ENTRY(tcgen05_mxf4nvf4, MmaKind::mxf4nvf4, false)
