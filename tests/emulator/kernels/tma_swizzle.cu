// What TMA does to a tile on its way into shared memory, for every swizzle: load a box, show the raw bytes, store it back.
//
// The swizzle is a property of the tensor map, so the kernel does not know it. One CTA moves one box of ROWS x row_bytes:
//
//    source (global)      shared memory                image (global)        target (global)
//    +----+----+--        box, swizzled                byte for byte          +----+----+--
//    | box| box|     ->   128-byte lines,        ->    what shared memory     | box| box|
//    +----+----+--        16-byte pieces exchanged     holds                  +----+----+--
//         |                        \______________ TMA store undoes it ____________/
//
// A box that sticks out of the tensor arrives with zeros and still counts ROWS * row_bytes on the barrier; the store drops what is
// outside. Threads only read the tile, so the store needs no proxy fence: TMA wrote it, TMA reads it.
#include "common/mbarrier.cuh"
#include "common/tensor_copy.cuh"

#include "aligned.cuh"

using namespace zoo;

constexpr int ROWS = 32;
constexpr int MAX_ROW_BYTES = 128;
constexpr int SHARED_BYTES = ROWS * MAX_ROW_BYTES + 1024;  // 1024: room to align
static_assert(SHARED_BYTES == 5120, "the launch asks for this much");

extern "C" __global__ void tma_swizzle(const __grid_constant__ TensorMap source, const __grid_constant__ TensorMap target,
                                       uint8_t* image, int row_bytes) {
    extern __shared__ uint8_t dynamic[];
    __shared__ Barrier full;
    uint8_t* tile = align_1024(dynamic);
    const int column = blockIdx.x * row_bytes, row = blockIdx.y * ROWS;

    if (threadIdx.x == 0) {
        prefetch(source);
        initialise(&full, 1);
    }
    __syncthreads();

    if (threadIdx.x == 0) {
        arrive_expecting_bytes(&full, ROWS * row_bytes);
        load_box(tile, source, column, row, &full);
    }
    wait(&full, 0);

    uint8_t* my_image = image + (blockIdx.y * gridDim.x + blockIdx.x) * ROWS * row_bytes;
    for (int i = threadIdx.x; i < ROWS * row_bytes; i += blockDim.x) my_image[i] = tile[i];

    if (threadIdx.x == 0) {
        store_box(target, tile, column, row);
        wait_until_stores_have_read();  // shared memory must outlive the copy engine's reads
    }
}
