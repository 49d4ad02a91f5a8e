// cp.async: 16-byte copies global -> shared by every thread for itself (the way before TMA, still useful for gathers).
//
// y[row] = sum over the columns of x[index[row]], f32 integers, so the order of the sum does not matter. Two forms:
//
//  cp_async_groups    a ring of tiles kept full by commit_group / wait_group: "all but the newest PENDING groups have landed".
//                     A group belongs to a thread; __syncthreads() makes everybody's part visible to everybody.
//  cp_async_mbarrier  the same tiles announced on an mbarrier: cp.async.mbarrier.arrive.noinc makes one arrival when this thread's
//                     copies have landed, so full[s] counts THREADS arrivals.
//
//    tile = ROWS rows x 16 bytes * THREADS_PER_ROW;  thread t copies piece t%8 of row t/8
//
// Rows past the end are filled with zeros by copying 0 of the 16 bytes (src-size operand).
#include "common/async_copy.cuh"
#include "common/mbarrier.cuh"

using namespace zoo;

constexpr int THREADS = 64;
constexpr int COLUMNS = 32;        // f32 per row and tile: 128 bytes
constexpr int ROWS = THREADS / 8;  // 8 pieces of 16 bytes per row
constexpr int STAGES = 3;
static_assert(COLUMNS * 4 == 8 * 16, "eight 16-byte pieces per row");

struct Tile {
    alignas(16) float value[ROWS][COLUMNS];
};

// This thread's piece of column tile `tile` of the rows of this CTA.
__device__ __forceinline__ void copy_piece(Tile& target, const float* x, const int* index, int rows, int columns, int tile) {
    const int row = blockIdx.x * ROWS + threadIdx.x / 8, piece = threadIdx.x % 8;
    const bool inside = row < rows;
    const float* source = x + static_cast<size_t>(inside ? index[row] : 0) * columns + tile * COLUMNS + piece * 4;
    copy_16_bytes(shared_address(&target.value[threadIdx.x / 8][piece * 4]), source, inside);
}

__device__ __forceinline__ float row_sum(const Tile& tile) {
    float sum = 0;
    for (int i = 0; i < COLUMNS; i++) sum += tile.value[threadIdx.x % ROWS][(i + threadIdx.x) % COLUMNS];
    return sum;
}

extern "C" __global__ void __launch_bounds__(THREADS)
    cp_async_groups(const float* x, const int* index, float* y, int rows, int columns) {
    __shared__ Tile ring[STAGES];
    const int tiles = columns / COLUMNS;
    for (int i = 0; i < STAGES - 1; i++) {
        if (i < tiles) copy_piece(ring[i], x, index, rows, columns, i);
        asm volatile("cp.async.commit_group;" ::: "memory");  // an empty group keeps the count simple
    }
    float sum = 0;
    for (int tile = 0; tile < tiles; tile++) {
        asm volatile("cp.async.wait_group %0;" ::"n"(STAGES - 2) : "memory");
        __syncthreads();  // everybody's pieces of `tile` are there, and everybody is done with tile - 1
        if (tile + STAGES - 1 < tiles) copy_piece(ring[(tile + STAGES - 1) % STAGES], x, index, rows, columns, tile + STAGES - 1);
        asm volatile("cp.async.commit_group;" ::: "memory");
        sum += row_sum(ring[tile % STAGES]);
    }
    const int row = blockIdx.x * ROWS + threadIdx.x;
    if (threadIdx.x < ROWS && row < rows) y[row] = sum;
}

extern "C" __global__ void __launch_bounds__(THREADS)
    cp_async_mbarrier(const float* x, const int* index, float* y, int rows, int columns) {
    __shared__ Tile ring[STAGES];
    __shared__ Barrier full[STAGES], empty[STAGES];
    const int tiles = columns / COLUMNS;
    if (threadIdx.x == 0) {
        for (int i = 0; i < STAGES; i++) {
            initialise(&full[i], THREADS);
            initialise(&empty[i], THREADS);
        }
    }
    __syncthreads();

    auto copy = [&](int tile, const Ring<STAGES>& at) {
        wait(&empty[at.stage], at.parity ^ 1);
        copy_piece(ring[at.stage], x, index, rows, columns, tile);
        arrive_after_copies(&full[at.stage]);
    };
    Ring<STAGES> ahead, now;
    for (int i = 0; i < STAGES - 1 && i < tiles; i++, ahead.advance()) copy(i, ahead);
    float sum = 0;
    for (int tile = 0; tile < tiles; tile++, now.advance()) {
        wait(&full[now.stage], now.parity);
        sum += row_sum(ring[now.stage]);
        arrive(&empty[now.stage]);
        if (tile + STAGES - 1 < tiles) {
            copy(tile + STAGES - 1, ahead);
            ahead.advance();
        }
    }
    const int row = blockIdx.x * ROWS + threadIdx.x;
    if (threadIdx.x < ROWS && row < rows) y[row] = sum;
}
