// Blackwell, TMA gather: four rows of a matrix, picked by index, as one box. y[i] = x[index[i]].
//
// What a mixture-of-experts GEMM needs to read its tokens without a permuted copy. The map's box is one row high; the instruction takes a
// column and four row numbers. A row number outside the matrix brings zeros.
//
//    index:  7 2 2 9        x row 7  ->  tile row 0
//                           x row 2  ->  tile row 1     then an ordinary TMA store of 4 rows
//                           x row 2  ->  tile row 2
//                           x row 9  ->  tile row 3
#include "common/address.cuh"
#include "common/fence.cuh"
#include "common/mbarrier.cuh"
#include "common/tma.cuh"

constexpr int COLUMNS = 64;  // bf16: 128 bytes
constexpr uint32_t TILE_BYTES = 4 * COLUMNS * 2;

extern "C" __global__ void tma_gather4(const __grid_constant__ TensorMap map_x, const __grid_constant__ TensorMap map_y,
                                       const int* index) {
    __shared__ alignas(1024) uint16_t tile[4 * COLUMNS];
    __shared__ mbarrier::Barrier full;
    static_assert(sizeof(tile) == TILE_BYTES, "four rows");
    if (threadIdx.x == 0) {
        mbarrier::init(&full, 1);
        fence::mbarrier_init();
        int rows[4];
        for (int i = 0; i < 4; i++) rows[i] = index[blockIdx.y * 4 + i];
        mbarrier::arrive_expect_bytes(&full, TILE_BYTES);
        tma::load_gather4(tile, &map_x, blockIdx.x * COLUMNS, rows, &full);
        mbarrier::wait(&full, 0);
        tma::store_2d(&map_y, tile, blockIdx.x * COLUMNS, blockIdx.y * 4);
        tma::commit_group();
        tma::wait_group_read<0>();
    }
}
