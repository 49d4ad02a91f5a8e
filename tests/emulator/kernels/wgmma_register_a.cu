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
#include "common/address.cuh"
#include "common/fence.cuh"
#include "common/mbarrier.cuh"
#include "common/tma.cuh"
#include "common/warp.cuh"
#include "common/wgmma.cuh"

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
                 : "r"(address::shared(row))
                 : "memory");
}

extern "C" __global__ void __launch_bounds__(THREADS)
    wgmma_register_a(const __grid_constant__ TensorMap map_a, const __grid_constant__ TensorMap map_b, float* d, int m, int n,
                     int k) {
    extern __shared__ uint8_t dynamic[];
    __shared__ mbarrier::Barrier full[STAGES], empty[STAGES];
    uint8_t* tiles = address::align_1024(dynamic);
    const int row = blockIdx.y * TILE_M, column = blockIdx.x * TILE_N;
    const int k_tiles = (k + TILE_K - 1) / TILE_K;

    if (threadIdx.x == 0) {
        for (int i = 0; i < STAGES; i++) {
            mbarrier::init(&full[i], 1);
            mbarrier::init(&empty[i], CONSUMER_WARPS);
        }
        fence::mbarrier_init();
    }
    __syncthreads();

    mbarrier::Ring<STAGES> ring;
    if (warp::index() == CONSUMER_WARPS) {
        // Producer.
        if (warp::elect_one()) {
            for (int tile = 0; tile < k_tiles; tile++, ring.advance()) {
                uint8_t* a = tiles + ring.stage * STAGE_BYTES;
                mbarrier::wait(&empty[ring.stage], ring.parity ^ 1);
                mbarrier::arrive_expect_bytes(&full[ring.stage], STAGE_BYTES);
                tma::load_2d(a, &map_a, tile * TILE_K, row, &full[ring.stage]);
                tma::load_2d(a + A_BYTES, &map_b, tile * TILE_K, column, &full[ring.stage]);
            }
        }
        return;
    }

    // Consumers: one warpgroup. a_registers[step] is read by an mma in flight: it must not change before the wait.
    const uint32_t a_row = warp::index() * 16 + warp::lane() % 16, piece = warp::lane() / 16;
    float accumulator[TILE_N / 2];
    for (int tile = 0; tile < k_tiles; tile++, ring.advance()) {
        const uint8_t* a = tiles + ring.stage * STAGE_BYTES;
        uint32_t a_registers[TILE_K / 16][4];
        mbarrier::wait(&full[ring.stage], ring.parity);
#pragma unroll
        for (int step = 0; step < TILE_K / 16; step++) {
            load_matrix_x4(a_registers[step], a + a_row * 128 + (((2 * step + piece) ^ (a_row % 8)) * 16));
            for (uint32_t& pair : a_registers[step]) pair &= 0x7fff7fff;
            wgmma::hold(a_registers[step]);
        }
        wgmma::hold(accumulator);
        wgmma::fence();
#pragma unroll
        for (int step = 0; step < TILE_K / 16; step++)
            wgmma::m64n64k16_bf16_registers<0>(accumulator, a_registers[step], wgmma::k_major_128b(a + A_BYTES + step * 32),
                                               tile > 0 || step > 0);
        wgmma::commit_group();
        wgmma::wait_group<0>();
        wgmma::hold(accumulator);
        if (warp::lane() == 0) mbarrier::arrive(&empty[ring.stage]);
    }

#pragma unroll
    for (int j = 0; j < TILE_N / 2; j += 2) {
        const int r = row + wgmma::accumulator_row(j), c = column + wgmma::accumulator_column(j);
        if (r < m && c < n) *reinterpret_cast<float2*>(&d[static_cast<size_t>(r) * n + c]) = {accumulator[j], accumulator[j + 1]};
    }
}
