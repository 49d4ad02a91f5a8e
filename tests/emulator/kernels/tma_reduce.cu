// TMA as an adder: y (f32) += x, and a column sum, by cp.reduce.async.bulk.tensor.
//
// Every CTA loads one 32 x 32 box of x and adds it to the box of y with the same columns and the *first* 32 rows, so all CTAs of a grid
// column add into one place: element by element and atomically, in any order (the test uses integers, so order does not show).
// The loaded tile goes straight from one TMA operation to the next: no thread touches it and no proxy fence is needed.
#include "common/address.cuh"
#include "common/fence.cuh"
#include "common/mbarrier.cuh"
#include "common/tma.cuh"

constexpr int TILE = 32;
constexpr uint32_t TILE_BYTES = TILE * TILE * 4;

extern "C" __global__ void tma_reduce(const __grid_constant__ TensorMap map_x, const __grid_constant__ TensorMap map_y) {
    __shared__ alignas(128) float tile[TILE * TILE];
    __shared__ mbarrier::Barrier full;
    static_assert(sizeof(tile) == TILE_BYTES, "one box");
    if (threadIdx.x == 0) {
        mbarrier::init(&full, 1);
        fence::mbarrier_init();
        mbarrier::arrive_expect_bytes(&full, TILE_BYTES);
        tma::load_2d(tile, &map_x, blockIdx.x * TILE, blockIdx.y * TILE, &full);
        mbarrier::wait(&full, 0);
        tma::add_2d(&map_y, tile, blockIdx.x * TILE, 0);
        tma::commit_group();
        tma::wait_group_read<0>();
    }
}
