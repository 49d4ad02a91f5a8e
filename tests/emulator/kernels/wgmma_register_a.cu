// Hopper, A from registers: D (f32, M x N) = |A| (bf16, M x K) * B (bf16, N x K)^T.
//
// wgmma can take A from registers, so A may be changed on its way from shared memory to the tensor core: here its sign is
// cleared; a quantised GEMM would unpack and scale here. B still comes from shared memory.
//
//    shared memory (128-byte swizzle)          registers of one warp              tensor core
//    A rows 16w .. 16w+15, 16 values of K  ->  ldmatrix.x4: four 8x8 pieces  ->  & 0x7fff7fff  ->  wgmma
//
//         k 0..7   k 8..15
//        +--------+--------+
//        |   0    |   2    |  rows 0..7       ldmatrix.x4: lane l gives the address of one 16-byte row: row l%16 of the
//        +--------+--------+                  16, piece l/16 of the two along K. The result is register 0..3 exactly in
//        |   1    |   3    |  rows 8..15      the order that wgmma wants.
//        +--------+--------+
//
// The swizzle puts 16-byte piece p of row r at piece p ^ (r % 8) of that row.
#include "common/mbarrier.cuh"
#include "common/pair_copy.cuh"
#include "common/tensor_copy.cuh"
#include "common/wgmma.cuh"
#include "common/wgmma_registers_bf16.cuh"

#include "aligned.cuh"

using namespace zoo;

constexpr int TILE_M = 64, TILE_N = 64, TILE_K = 64;
constexpr int STAGES = 2;
constexpr int CONSUMER_WARPS = 4;
constexpr int THREADS = (CONSUMER_WARPS + 1) * 32;

constexpr uint32_t A_BYTES = TILE_M * TILE_K * 2, B_BYTES = TILE_N * TILE_K * 2;
constexpr uint32_t STAGE_BYTES = A_BYTES + B_BYTES;
static_assert(TILE_K * 2 == 128, "a row is exactly one 128-byte swizzle line");
constexpr uint32_t SHARED_BYTES = STAGES * STAGE_BYTES + 1024;
static_assert(SHARED_BYTES == 33792, "the launch asks for this much");
static_assert(THREADS == 160, "the launch uses this many");

__device__ __forceinline__ void load_matrix_x4(uint32_t (&registers)[4], const uint8_t* row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(registers[0]), "=r"(registers[1]), "=r"(registers[2]), "=r"(registers[3])
                 : "r"(shared_address(row))
                 : "memory");
}

extern "C" __global__ void __launch_bounds__(THREADS)
    wgmma_register_a(const __grid_constant__ TensorMap map_a, const __grid_constant__ TensorMap map_b, float* d, int m, int n,
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

    // Consumers: one warpgroup. a_registers[step] is read by an mma in flight: it must not change before the wait.
    const uint32_t a_row = threadIdx.x / 32 * 16 + threadIdx.x % 32 % 16, piece = threadIdx.x % 32 / 16;
    float accumulator[TILE_N / 2] = {};
    for (int tile = 0; tile < k_tiles; tile++, ring.advance()) {
        const uint8_t* a = tiles + ring.stage * STAGE_BYTES;
        uint32_t a_registers[TILE_K / 16][4];
        wait(&full[ring.stage], ring.parity);
#pragma unroll
        for (int step = 0; step < TILE_K / 16; step++) {
            load_matrix_x4(a_registers[step], a + a_row * 128 + (((2 * step + piece) ^ (a_row % 8)) * 16));
            for (uint32_t& pair : a_registers[step]) pair &= 0x7fff7fff;
            hold(a_registers[step]);
        }
        hold(accumulator);
        fence_registers();
#pragma unroll
        for (int step = 0; step < TILE_K / 16; step++)
            multiply_bf16_registers<64>(accumulator, a_registers[step], matrix_descriptor(a + A_BYTES + step * 32));
        commit_multiplications();
        wait_for_multiplications<0>();
        hold(accumulator);
        if (threadIdx.x % 32 == 0) arrive(&empty[ring.stage]);
    }

#pragma unroll
    for (int j = 0; j < TILE_N / 2; j += 2) {
        const int r = row + accumulator_row(j), c = column + accumulator_column(j);
        if (r < m && c < n) *reinterpret_cast<float2*>(&d[static_cast<size_t>(r) * n + c]) = {accumulator[j], accumulator[j + 1]};
    }
}
