// The two ways TMA brings packed 4-bit values into shared memory; the raw bytes are shown.
//
//   16U4_ALIGN8B    as they are: 128 values = 64 bytes                    (tcgen05 kinds mxf4 and mxf4nvf4)
//   16U4_ALIGN16B   spread: 16 values = 8 bytes of data + 8 bytes of gap  (kind mxf8f6f4: a value's row pitch is that of 8 bits)
//
//        global      | 8 bytes | 8 bytes | ...
//        ALIGN16B    | 8 bytes | (gap)   | 8 bytes | (gap)   | ...      the gap is not written: reading it is reading garbage
//
// Either way the barrier gets the packed bytes: 64 per row of 128 values, although ALIGN16B fills 128 bytes of shared memory.
// The kernel copies the 8 data bytes of every 16 for ALIGN16B (`spread` = 2), everything for ALIGN8B (`spread` = 1).
#include "common/mbarrier.cuh"
#include "common/tensor_copy.cuh"

using namespace zoo;

constexpr int VALUES = 128, ROWS = 16;
constexpr uint32_t PACKED_BYTES = ROWS * VALUES / 2;
static_assert(PACKED_BYTES == 1024, "expected on the barrier, in both cases");

extern "C" __global__ void tma_packed_fp4(const __grid_constant__ TensorMap map, uint64_t* image, int spread) {
    __shared__ alignas(1024) uint64_t tile[ROWS * VALUES / 8];  // room for the spread form
    __shared__ Barrier full;
    if (threadIdx.x == 0) {
        initialise(&full, 1);
    }
    __syncthreads();
    if (threadIdx.x == 0) {
        arrive_expecting_bytes(&full, PACKED_BYTES);
        load_box(tile, map, blockIdx.x * VALUES, blockIdx.y * ROWS, &full);
    }
    wait(&full, 0);
    uint64_t* my_image = image + (blockIdx.y * gridDim.x + blockIdx.x) * (PACKED_BYTES / 8);
    for (int i = threadIdx.x; i < static_cast<int>(PACKED_BYTES / 8); i += blockDim.x) my_image[i] = tile[i * spread];
}
