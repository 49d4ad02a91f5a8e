// Blackwell, everything at once: a persistent NVFP4 GEMM. D (f32, M x N) = (A * scales) (B * scales)^T, e2m1 with ue4m3 scales per 16.
//
// One CTA computes 128 x 128 tiles, one after the other: its own (blockIdx.x) first, then those of CTAs that are never launched (cluster
// launch control). Two accumulators, so that the epilogue of one tile runs under the multiplication of the next:
//
//    loader       | tile 0 | tile 1 | tile 2 | ...             ring of STAGES: full[s] / empty[s]
//    multiplier      | tile 0 | tile 1 | tile 2 | ...          accumulators 0 1 0 1 ...: ready[a] / drained[a]
//    epilogue                 | tile 0 | tile 1 | ...
//    scheduler    asks for the tile after next                 ring of ANSWERS: answered[i] / read[i]
//
//    barrier     arrivals                          who waits
//    full        1 (loader) + bytes                multiplier
//    empty       1 (commit)                        loader
//    ready       1 (commit)                        epilogue
//    drained     4 (one lane per epilogue warp)    multiplier
//    answered    1 (scheduler) + 16 bytes          everybody
//    read        READERS = 7                       scheduler: an answer may be overwritten when all have read it
//
//    tensor memory, 512 columns: 0..127 and 128..255 accumulators, then per stage 16 columns of A's scales, 16 of B's
//
// Warps: 0 loader, 1 multiplier, 2 scheduler and owner of tensor memory, 3 idle, 4..7 epilogue (warp w reaches lanes 32*(w%4)..).
#include "common/block_scaled_mma.cuh"
#include "common/cluster_launch.cuh"
#include "common/mbarrier.cuh"
#include "common/pair_copy.cuh"
#include "common/tensor_copy.cuh"
#include "common/tensor_memory.cuh"

#include "aligned.cuh"
#include "block_scaled_stage.cuh"

using namespace zoo;

using Format = ScaledStage<MmaKind::mxf4nvf4, false>;

constexpr int TILE_M = 128, TILE_N = 128, STAGES = 3, ACCUMULATORS = 2, ANSWERS = 2, COLUMNS = 512, THREADS = 256;
constexpr int EPILOGUE_WARPS = 4, READERS = 3 + EPILOGUE_WARPS;
constexpr uint32_t A_BYTES = TILE_M * ROW_BYTES, B_BYTES = TILE_N * ROW_BYTES;
constexpr uint32_t STAGE_BYTES = A_BYTES + B_BYTES + 2 * Format::SCALE_BYTES;
static_assert(STAGE_BYTES % 1024 == 0, "every tile starts on a swizzle repeat");
static_assert(ACCUMULATORS * TILE_N + STAGES * 2 * Format::SCALE_COLUMNS <= COLUMNS, "accumulators and every stage's scales fit");
constexpr uint32_t SHARED_BYTES = STAGES * STAGE_BYTES + 1024;
static_assert(SHARED_BYTES == 111616 && THREADS == 256 && READERS == 7, "what the launch asks for, what the table says");

struct Shared {
    Barrier full[STAGES], empty[STAGES], ready[ACCUMULATORS], drained[ACCUMULATORS], answered[ANSWERS], read[ANSWERS];
    LaunchAnswer answer[ANSWERS];
    uint32_t tensor_address;
};

// The next tile, or -1. Called by every role: by one elected lane, or by a whole warp, of which one lane reports.
template <bool WHOLE_WARP>
__device__ __forceinline__ int next_tile(Shared& shared, Ring<ANSWERS>& ring) {
    wait(&shared.answered[ring.stage], ring.parity);
    const int tile = first_cta_of(&shared.answer[ring.stage]);
    let_copies_see_shared_memory();  // this read before the next answer is written
    if (WHOLE_WARP) __syncwarp();
    if (!WHOLE_WARP || threadIdx.x % 32 == 0) arrive(&shared.read[ring.stage]);
    ring.advance();
    return tile;
}

extern "C" __global__ void __launch_bounds__(THREADS)
    tcgen05_persistent(const __grid_constant__ TensorMap map_a, const __grid_constant__ TensorMap map_b, const uint8_t* scales_a,
                       const uint8_t* scales_b, float* d, int m, int n, int k) {
    extern __shared__ uint8_t dynamic[];
    __shared__ Shared shared;
    uint8_t* buffers = align_1024(dynamic);
    const int k_tiles = (k + Format::TILE_K - 1) / Format::TILE_K, tiles_n = (n + TILE_N - 1) / TILE_N;
    const uint32_t warp_index = threadIdx.x / 32;

    if (threadIdx.x == 0) {
        for (Barrier& barrier : shared.full) initialise(&barrier, 1);
        for (Barrier& barrier : shared.empty) initialise(&barrier, 1);
        for (Barrier& barrier : shared.ready) initialise(&barrier, 1);
        for (Barrier& barrier : shared.drained) initialise(&barrier, EPILOGUE_WARPS);
        for (Barrier& barrier : shared.answered) initialise(&barrier, 1);
        for (Barrier& barrier : shared.read) initialise(&barrier, READERS);
    }
    if (warp_index == 2) allocate_columns<1, COLUMNS>(&shared.tensor_address);
    fence_before_handing_over();
    __syncthreads();
    fence_after_taking_over();
    const uint32_t tensor_memory = shared.tensor_address;

    Ring<STAGES> stage;
    Ring<ACCUMULATORS> accumulator;
    Ring<ANSWERS> answer;
    if (warp_index == 0 && elected()) {
        // Loader.
        for (int tile = blockIdx.x; tile >= 0; tile = next_tile<false>(shared, answer)) {
            const int row_tile = tile / tiles_n, column_tile = tile % tiles_n;
            const uint8_t* row_scales_a = scales_a + static_cast<size_t>(row_tile) * k_tiles * Format::SCALE_BYTES;
            const uint8_t* row_scales_b = scales_b + static_cast<size_t>(column_tile) * k_tiles * Format::SCALE_BYTES;
            for (int i = 0; i < k_tiles; i++, stage.advance()) {
                uint8_t* a = buffers + stage.stage * STAGE_BYTES;
                uint8_t* scales = a + A_BYTES + B_BYTES;
                Barrier* full = &shared.full[stage.stage];
                wait(&shared.empty[stage.stage], stage.parity ^ 1);
                arrive_expecting_bytes(full, STAGE_BYTES);
                load_box(a, map_a, i * Format::TILE_K, row_tile * TILE_M, full);
                load_box(a + A_BYTES, map_b, i * Format::TILE_K, column_tile * TILE_N, full);
                load_bytes(scales, row_scales_a + i * Format::SCALE_BYTES, Format::SCALE_BYTES, full);
                load_bytes(scales + Format::SCALE_BYTES, row_scales_b + i * Format::SCALE_BYTES, Format::SCALE_BYTES, full);
            }
        }
    } else if (warp_index == 1 && elected()) {
        // Multiplier.
        const uint32_t instruction = instruction_descriptor(TILE_M, TILE_N, Format::TYPE_A, Format::TYPE_B, false);
        for (int tile = blockIdx.x; tile >= 0; tile = next_tile<false>(shared, answer), accumulator.advance()) {
            const uint32_t sum = tensor_memory + accumulator.stage * TILE_N;
            wait(&shared.drained[accumulator.stage], accumulator.parity ^ 1);
            for (int i = 0; i < k_tiles; i++, stage.advance()) {
                const uint8_t* a = buffers + stage.stage * STAGE_BYTES;
                const uint8_t* b = a + A_BYTES;
                const uint8_t* scales = b + B_BYTES;
                const uint32_t scale_a = tensor_memory + ACCUMULATORS * TILE_N + stage.stage * 2 * Format::SCALE_COLUMNS;
                const uint32_t scale_b = scale_a + Format::SCALE_COLUMNS;
                wait(&shared.full[stage.stage], stage.parity);
                fence_after_taking_over();  // after this barrier and, in the first round, after `drained`
#pragma unroll
                for (int block = 0; block < Format::SCALE_BLOCKS; block++) {
                    copy_scales<1>(scale_a + block * 4, scale_descriptor(shared_address(scales + block * 512)));
                    copy_scales<1>(scale_b + block * 4,
                                   scale_descriptor(shared_address(scales + Format::SCALE_BYTES + block * 512)));
                }
#pragma unroll
                for (int step = 0; step < INSTRUCTIONS; step++)  // one scale block per instruction
                    multiply<1, MmaKind::mxf4nvf4>(sum, operand_descriptor(shared_address(a + step * 32)),
                                                   operand_descriptor(shared_address(b + step * 32)), instruction,
                                                   scale_a + step * 4, scale_b + step * 4, i > 0 || step > 0);
                arrive_after_multiplications<1>(&shared.empty[stage.stage]);
            }
            arrive_after_multiplications<1>(&shared.ready[accumulator.stage]);
        }
    } else if (warp_index == 2 && elected()) {
        // Scheduler.
        for (int tile = blockIdx.x; tile >= 0; tile = next_tile<false>(shared, answer)) {
            wait(&shared.read[answer.stage], answer.parity ^ 1);
            arrive_expecting_bytes(&shared.answered[answer.stage], sizeof(LaunchAnswer));
            request_next_cluster(&shared.answer[answer.stage], &shared.answered[answer.stage]);
        }
    } else if (warp_index >= 4) {
        // Epilogue: lane l of warp w writes row 32*(w%4) + l.
        const int lane_row = (warp_index % 4) * 32 + threadIdx.x % 32;
        for (int tile = blockIdx.x; tile >= 0; tile = next_tile<true>(shared, answer), accumulator.advance()) {
            const int row = tile / tiles_n * TILE_M + lane_row, column = tile % tiles_n * TILE_N;
            wait(&shared.ready[accumulator.stage], accumulator.parity);
            fence_after_taking_over();
#pragma unroll 1
            for (int c = 0; c < TILE_N; c += 16) {
                float values[16];
                load_16_columns(values, tensor_memory + ((warp_index % 4) * 32 << 16) + accumulator.stage * TILE_N + c);
                wait_for_loads();
                if (c + 16 == TILE_N) {  // the accumulator has been read: the next tile may use it
                    fence_before_handing_over();
                    __syncwarp();
                    if (threadIdx.x % 32 == 0) arrive(&shared.drained[accumulator.stage]);
                }
#pragma unroll
                for (int i = 0; i < 16; i++)
                    if (row < m && column + c + i < n) d[static_cast<size_t>(row) * n + column + c + i] = values[i];
            }
        }
    }
    __syncwarp();
    fence_before_handing_over();
    __syncthreads();
    if (warp_index == 2) {
        fence_after_taking_over();
        free_columns<1, COLUMNS>(tensor_memory);
    }
}
