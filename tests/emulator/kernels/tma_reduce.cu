// TMA as an adder: y (f32) += x, and a column sum, by cp.reduce.async.bulk.tensor.
//
// Every CTA loads one 32 x 32 box of x and adds it to the box of y with the same columns and the *first* 32 rows, so all CTAs of a grid
// column add into one place: element by element and atomically, in any order (the test uses integers, so order does not show).
// The loaded tile goes straight from one TMA operation to the next: no thread touches it and no proxy fence is needed.
#include "common/mbarrier.cuh"
#include "common/tensor_copy.cuh"

using namespace zoo;

constexpr int TILE = 32;
constexpr uint32_t TILE_BYTES = TILE * TILE * 4;

__device__ __forceinline__ void add_box(const TensorMap& map, const void* source, int32_t c0, int32_t c1) {
    asm volatile("cp.reduce.async.bulk.tensor.2d.global.shared::cta.add.tile.bulk_group [%0, {%1, %2}], [%3];" ::"l"(&map),
                 "r"(c0), "r"(c1), "r"(shared_address(source))
                 : "memory");
}

extern "C" __global__ void tma_reduce(const __grid_constant__ TensorMap map_x, const __grid_constant__ TensorMap map_y) {
    __shared__ alignas(128) float tile[TILE * TILE];
    __shared__ Barrier full;
    static_assert(sizeof(tile) == TILE_BYTES, "one box");
    if (threadIdx.x == 0) {
        initialise(&full, 1);
        arrive_expecting_bytes(&full, TILE_BYTES);
        load_box(tile, map_x, blockIdx.x * TILE, blockIdx.y * TILE, &full);
        wait(&full, 0);
        add_box(map_y, tile, blockIdx.x * TILE, 0);
        wait_until_stores_have_read();
    }
}
