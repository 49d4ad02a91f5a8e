// Blackwell, block-scaled GEMM by a pair of CTAs: one mma of 256 x 128 over two SMs, half of the operands in each.
//
//                       even CTA (leader)                      odd CTA
//    shared, per stage  A rows 0..127, B rows 0..63            A rows 128..255, B rows 64..127
//                       scales of its A rows, of all B rows    scales of its A rows, of all B rows
//    tensor memory      D rows 0..127, all 128 columns         D rows 128..255
//    issues             loads of its half                      loads of its half
//                       every cp, mma, commit                  nothing
//
// Signals:
//    full[s]   of the leader only: both CTAs' loads signal it (cta_group::2 loads may name the peer's barrier), the leader's loader
//              expects the bytes of both. The odd CTA's own full[s] is not used.
//    empty[s]  of both: the commit is multicast, each loader waits for its own.
//    accumulator_full  of both, by multicast commit.
// A copy of scales and an mma of cta_group::2 act on both CTAs: same shared-memory offsets, same tensor-memory columns.
//
// A CTA may not exit while signals to its barriers are on the way: loaders drain the ring before the last cluster barrier.
#include "common/block_scaled_mma.cuh"
#include "common/cluster.cuh"
#include "common/mbarrier.cuh"
#include "common/pair_copy.cuh"
#include "common/tensor_copy.cuh"
#include "common/tensor_memory.cuh"

#include "aligned.cuh"
#include "block_scaled_stage.cuh"

using namespace zoo;

constexpr int PAIR = 2;
constexpr int CTA_M = 128, CTA_B_ROWS = 64;  // this CTA's part of A and D, and of B
constexpr int TILE_M = PAIR * CTA_M, TILE_N = PAIR * CTA_B_ROWS;
constexpr int STAGES = 3, THREADS = 128, COLUMNS = 256;
constexpr uint32_t A_BYTES = CTA_M * ROW_BYTES, B_BYTES = CTA_B_ROWS * ROW_BYTES;
constexpr uint32_t STAGE_BYTES = A_BYTES + B_BYTES + 2 * MAX_SCALE_BLOCKS * 512;
static_assert(STAGE_BYTES % 1024 == 0, "every tile starts on a swizzle repeat");
constexpr uint32_t SHARED_BYTES = STAGES * STAGE_BYTES + 1024;
static_assert(SHARED_BYTES == 87040 && THREADS == 128, "what the launch asks for");

template <MmaKind KIND, bool B_UNPACKED>
__device__ __forceinline__ void gemm(const TensorMap& map_a, const TensorMap& map_b, const TensorMap& map_scales_a,
                                     const TensorMap& map_scales_b, float* d, int m, int n, int k) {
    using Format = ScaledStage<KIND, B_UNPACKED>;
    constexpr uint32_t FULL_BYTES = PAIR * (A_BYTES + CTA_B_ROWS * Format::B_ROW_BYTES_MOVED + 2 * Format::SCALE_BYTES);
    static_assert(TILE_N + STAGES * 2 * Format::SCALE_COLUMNS <= COLUMNS, "D and every stage's scales fit");

    extern __shared__ uint8_t dynamic[];
    __shared__ Barrier full[STAGES], empty[STAGES], accumulator_full;
    __shared__ uint32_t tensor_address;
    uint8_t* tiles = align_1024(dynamic);
    const uint32_t rank = cluster_rank();
    const int row = blockIdx.y * CTA_M, column = blockIdx.x * TILE_N;  // the pair's CTAs are neighbours in y
    const int k_tiles = (k + Format::TILE_K - 1) / Format::TILE_K;
    const uint32_t warp_index = threadIdx.x / 32;

    if (threadIdx.x == 0) {
        for (int i = 0; i < STAGES; i++) {
            initialise(&full[i], 1);   // the leader's expect
            initialise(&empty[i], 1);  // one commit
        }
        initialise(&accumulator_full, 1);
    }
    synchronise_cluster();  // the peer runs: the two allocate together
    if (warp_index == 2) allocate_columns<PAIR, COLUMNS>(&tensor_address);
    fence_before_handing_over();
    synchronise_cluster();
    fence_after_taking_over();
    const uint32_t accumulator = tensor_address;  // the same in both CTAs

    Ring<STAGES> ring;
    if (warp_index == 0 && elected()) {
        // Loader of this CTA's half. Scale maps: dimension 0 is one block (128 words), dimension 1 the block: 128 rows x all of K.
        const int first_block_a = blockIdx.y * k_tiles * Format::SCALE_BLOCKS;
        const int first_block_b = blockIdx.x * k_tiles * Format::SCALE_BLOCKS;
        for (int tile = 0; tile < k_tiles; tile++, ring.advance()) {
            uint8_t* a = tiles + ring.stage * STAGE_BYTES;
            uint8_t* b = a + A_BYTES;
            uint8_t* scales = b + B_BYTES;
            Barrier* barrier = &full[ring.stage];
            wait_for_published<PAIR>(&empty[ring.stage], ring.parity ^ 1);
            if (rank == 0) arrive_expecting_bytes(barrier, FULL_BYTES);
            load_box_for<PAIR>(a, map_a, tile * Format::TILE_K, row, barrier);
            load_box_for<PAIR>(b, map_b, tile * Format::TILE_K, column + rank * CTA_B_ROWS, barrier);
            load_box_for<PAIR>(scales, map_scales_a, 0, first_block_a + tile * Format::SCALE_BLOCKS, barrier);
            load_box_for<PAIR>(scales + Format::SCALE_BYTES, map_scales_b, 0, first_block_b + tile * Format::SCALE_BLOCKS,
                               barrier);
        }
        for (int i = 0; i < STAGES; i++, ring.advance()) wait_for_published<PAIR>(&empty[ring.stage], ring.parity ^ 1);
    } else if (warp_index == 1 && rank == 0 && elected()) {
        // Multiplier, for the pair.
        for (int tile = 0; tile < k_tiles; tile++, ring.advance()) {
            const uint8_t* a = tiles + ring.stage * STAGE_BYTES;
            const uint8_t* b = a + A_BYTES;
            const uint8_t* scales = b + B_BYTES;
            const uint32_t scale_a = accumulator + TILE_N + ring.stage * 2 * Format::SCALE_COLUMNS;
            const uint32_t scale_b = scale_a + Format::SCALE_COLUMNS;
            wait_for_published<PAIR>(&full[ring.stage], ring.parity);
            fence_after_taking_over();
#pragma unroll
            for (int block = 0; block < Format::SCALE_BLOCKS; block++) {
                copy_scales<PAIR>(scale_a + block * 4, scale_descriptor(shared_address(scales + block * 512)));
                copy_scales<PAIR>(scale_b + block * 4,
                                  scale_descriptor(shared_address(scales + Format::SCALE_BYTES + block * 512)));
            }
#pragma unroll
            for (int i = 0; i < INSTRUCTIONS; i++) {
                const int first = i * Format::SCALES_PER_INSTRUCTION;  // this instruction's scales: byte first%4 of block first/4
                multiply<PAIR, KIND>(
                    accumulator, operand_descriptor(shared_address(a + i * 32)), operand_descriptor(shared_address(b + i * 32)),
                    instruction_descriptor(TILE_M, TILE_N, Format::TYPE_A, Format::TYPE_B, Format::SCALES_ARE_UE8M0) |
                        scales_at_byte(first % 4),
                    scale_a + first / 4 * 4, scale_b + first / 4 * 4, tile > 0 || i > 0);
            }
            arrive_in_all_after_multiplications<PAIR>(&empty[ring.stage]);
        }
        arrive_in_all_after_multiplications<PAIR>(&accumulator_full);
    }
    __syncwarp();

    // Epilogue: thread t writes row t of this CTA's half.
    wait_for_published<PAIR>(&accumulator_full, 0);
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
    synchronise_cluster();  // both CTAs have read their halves, nothing is on the way
    if (warp_index == 2) {
        fence_after_taking_over();
        free_columns<PAIR, COLUMNS>(accumulator);
    }
}

#define ENTRY(name, kind, b_unpacked)                                                                                          \
    extern "C" __global__ void __cluster_dims__(1, PAIR, 1) __launch_bounds__(THREADS)                                         \
        name(const __grid_constant__ TensorMap map_a, const __grid_constant__ TensorMap map_b,                                 \
             const __grid_constant__ TensorMap map_scales_a, const __grid_constant__ TensorMap map_scales_b, float* d, int m,  \
             int n, int k) {                                                                                                   \
        gemm<kind, b_unpacked>(map_a, map_b, map_scales_a, map_scales_b, d, m, n, k);                                      \
    }
ENTRY(tcgen05_pair_mxf8f6f4, MmaKind::mxf8f6f4, false)
ENTRY(tcgen05_pair_mxf8f6f4_e2m1, MmaKind::mxf8f6f4, true)
ENTRY(tcgen05_pair_mxf4, MmaKind::mxf4, false)
ENTRY(tcgen05_pair_mxf4nvf4, MmaKind::mxf4nvf4, false)
