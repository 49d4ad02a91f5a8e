// Blackwell, TMA gather: four rows of a matrix, picked by index, as one box. y[i] = x[index[i]].
//
// What a mixture-of-experts GEMM needs to read its tokens without a permuted copy. The map's box is one row high; the instruction takes a
// column and four row numbers. A row number outside the matrix brings zeros.
//
//    index:  7 2 2 9        x row 7  ->  tile row 0
//                           x row 2  ->  tile row 1     then an ordinary TMA store of 4 rows
//                           x row 2  ->  tile row 2
//                           x row 9  ->  tile row 3
#include "common/mbarrier.cuh"
#include "common/pair_copy.cuh"
#include "common/tensor_copy.cuh"

using namespace zoo;

constexpr int COLUMNS = 64;  // bf16: 128 bytes
constexpr uint32_t TILE_BYTES = 4 * COLUMNS * 2;

extern "C" __global__ void tma_gather4(const __grid_constant__ TensorMap map_x, const __grid_constant__ TensorMap map_y,
                                       const int* index) {
    __shared__ alignas(1024) uint16_t tile[4 * COLUMNS];
    __shared__ Barrier full;
    static_assert(sizeof(tile) == TILE_BYTES, "four rows");
    if (threadIdx.x == 0) {
        initialise(&full, 1);
        const int* four = index + blockIdx.y * 4;
        arrive_expecting_bytes(&full, TILE_BYTES);
        load_four_rows(tile, map_x, blockIdx.x * COLUMNS, {four[0], four[1], four[2], four[3]}, &full);
        wait(&full, 0);
        store_box(map_y, tile, blockIdx.x * COLUMNS, blockIdx.y * 4);
        wait_until_stores_have_read();
    }
}
