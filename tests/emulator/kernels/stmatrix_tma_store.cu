// The way out of a Hopper GEMM: accumulator registers -> bf16 -> stmatrix -> swizzled shared memory -> TMA store.
//
// Four warps hold a 64 x 64 tile of f32 as wgmma leaves it (here read from `x`, to keep the example small) and write it twice:
// y = bf16(x) with stmatrix, and y_transposed = bf16(x)^T with stmatrix.trans.
//
//    one stmatrix.x4 of a warp: four 8x8 pieces of its 16 rows x 16 columns       shared memory: rows of 64 bf16 = 128 bytes,
//         columns 0..7  8..15                                                     16-byte piece p of row r at p ^ (r % 8)
//        +--------+--------+
//        |   0    |   2    |  rows 0..7       register i of the packed accumulator holds piece i:
//        +--------+--------+                  pairs (0,1) (2,3) (4,5) (6,7) of the accumulator's registers
//        |   1    |   3    |  rows 8..15
//        +--------+--------+                  lane l gives the address of row l%8 of piece l/8
//
// Threads wrote the tile, the copy engine reads it: fence by every writer, barrier, one thread stores. Ragged edges are TMA's job.
#include "common/matrix_store.cuh"
#include "common/tensor_copy.cuh"
#include "common/wgmma.cuh"

#include "aligned.cuh"

using namespace zoo;

constexpr int TILE = 64;
constexpr int THREADS = 128;
constexpr uint32_t TILE_BYTES = TILE * TILE * 2;
static_assert(TILE * 2 == 128, "a row is exactly one 128-byte swizzle line");
constexpr uint32_t SHARED_BYTES = 2 * TILE_BYTES + 1024;
static_assert(SHARED_BYTES == 17408, "the launch asks for this much");

// The lower column goes into the lower half.
__device__ __forceinline__ uint32_t pack_bf16(float low, float high) {
    uint32_t packed;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(packed) : "f"(high), "f"(low));
    return packed;
}

__device__ __forceinline__ void store_matrices_transposed(uint8_t* row, const uint32_t (&pieces)[4]) {
    asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(shared_address(row)),
                 "r"(pieces[0]), "r"(pieces[1]), "r"(pieces[2]), "r"(pieces[3])
                 : "memory");
}

__device__ __forceinline__ uint8_t* swizzled(uint8_t* tile, int row, int column) {
    return tile + row * 128 + (((column / 8) ^ (row % 8)) * 16);
}

extern "C" __global__ void __launch_bounds__(THREADS)
    stmatrix_tma_store(const float* x, const __grid_constant__ TensorMap map_y,
                       const __grid_constant__ TensorMap map_y_transposed, int rows, int columns) {
    extern __shared__ uint8_t dynamic[];
    uint8_t* tile = align_1024(dynamic);
    uint8_t* tile_transposed = tile + TILE_BYTES;
    const int row = blockIdx.y * TILE, column = blockIdx.x * TILE;

    float accumulator[TILE / 2];
#pragma unroll
    for (int j = 0; j < TILE / 2; j++) {
        const int r = row + accumulator_row(j), c = column + accumulator_column(j);
        accumulator[j] = r < rows && c < columns ? x[static_cast<size_t>(r) * columns + c] : 0.0f;
    }

    const int lane = threadIdx.x % 32, first_row = (threadIdx.x / 32) * 16;
    const int piece_row = lane % 8 + (lane / 8) % 2 * 8, piece_column = lane / 16 * 8;
#pragma unroll
    for (int block = 0; block < TILE / 16; block++) {
        const float* value = &accumulator[block * 8];
        const uint32_t pieces[4] = {pack_bf16(value[0], value[1]), pack_bf16(value[2], value[3]), pack_bf16(value[4], value[5]),
                                    pack_bf16(value[6], value[7])};
        store_matrices(swizzled(tile, first_row + piece_row, block * 16 + piece_column), pieces);
        // Transposed, piece i has its 8 columns as rows: lane l gives the address of column l%8 of piece l/8.
        store_matrices_transposed(swizzled(tile_transposed, block * 16 + piece_column + lane % 8, first_row + (lane / 8) % 2 * 8),
                                  pieces);
    }

    let_copies_see_shared_memory();
    __syncthreads();
    if (threadIdx.x == 0) {
        store_box(map_y, tile, column, row);
        store_box(map_y_transposed, tile_transposed, row, column);
        wait_until_stores_have_read();
    }
}
