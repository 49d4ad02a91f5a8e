// Not a GEMM: a kernel with a result that is easy to check.
//
//     D[i, k] = (k < K ? x[2 * i, k] : NaN) + (k < K ? v[k] : 0) + add       for i < ceil(M / 2), k < round_up(K, 32)
//
// in f32. The map of x steps over every second row and fills with NaN past K, that of v fills with 0.
//
// Shared memory: ROWS rows of 32 bf16 (64B swizzle), and 32 floats.
#include <cuda_bf16.h>

#include "common/tma.cuh"

constexpr int ROW_BYTES = 64;
// a step of 2 over 2 * ROWS rows brings ROWS of them
constexpr int X_BYTES = Variant::ROWS * ROW_BYTES, V_BYTES = 32 * sizeof(float);

extern "C" __global__ void __launch_bounds__(32 * Variant::ROWS) ZOO_KERNEL(ZOO_PARAMETERS) {
    __shared__ __align__(1024) unsigned char tile[X_BYTES];
    __shared__ __align__(128) float vector[32];
    __shared__ uint64_t full;
    const int column = threadIdx.x % 32, row = threadIdx.x / 32;
    const int k0 = blockIdx.x * 32, i0 = blockIdx.y * Variant::ROWS;
    if (threadIdx.x == 0) {
        zoo::barrier_init(&full);
        zoo::barrier_expect(&full, X_BYTES + V_BYTES);
        zoo::load(vector, v, &full, k0);
        zoo::load(tile, x, &full, k0, 2 * i0);
    }
    __syncthreads();
    zoo::barrier_wait(&full, 0);
    if (i0 + row < rows) {
        const auto value = *reinterpret_cast<const __nv_bfloat16*>(tile + zoo::swizzled<64>(row * ROW_BYTES + column * 2));
        d[static_cast<long long>(i0 + row) * (gridDim.x * 32) + k0 + column] =
            __bfloat162float(value) + vector[column] + static_cast<float>(add);
    }
}
