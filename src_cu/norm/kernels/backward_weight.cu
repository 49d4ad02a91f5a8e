// norm.backward.weight: dweight (K) = the sum of the rows of dweight_parts (P, K), in a fixed order. A warp has 32 columns, and adds every
// eighth row. The eight sums of a column are added in pairs of neighbours:
//
//     warp       0             1             ...   7
//     rows       0, 8, 16 ..   1, 9, 17 ..         7, 15, 23 ..

#include <cstdint>
#include <type_traits>

#include "common/dependent_launch.cuh"
#include "common/half.cuh"
#include "common/variant.cuh"

// P and K are less than 2^31.
extern "C" __global__ void __launch_bounds__(Variant::THREADS) ZOO_KERNEL(ZOO_PARAMETERS) {
    using namespace zoo;
    constexpr int WARPS = Variant::THREADS / 32, AHEAD = 8;  // loads in flight
    constexpr int BYTES = std::is_same_v<Variant::dweight, f32> ? 4 : 2;
    using Half = std::conditional_t<BYTES == 2, Variant::dweight, bf16>;
    static_assert(WARPS == 8);
    __shared__ float sums[WARPS][32];
    let_next_kernel_launch();
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, column = blockIdx.x * 32 + lane;
    wait_for_previous_kernel();
    float sum = 0;
    if (column < K) {
        const float* from = dweight_parts + column;
        for (int64_t row = warp; row < P; row += WARPS * AHEAD) {
            float loaded[AHEAD];
#pragma unroll
            for (int i = 0; i < AHEAD; i++) {
                loaded[i] = 0;
                if (row + i * WARPS < P)
                    asm volatile("ld.global.f32 %0, [%1];" : "=f"(loaded[i]) : "l"(from + (row + i * WARPS) * K));
            }
#pragma unroll
            for (int i = 0; i < AHEAD; i++)
                if (row + i * WARPS < P) sum = __fadd_rn(sum, loaded[i]);
        }
    }
    sums[warp][lane] = sum;
    __syncthreads();
    if (warp != 0 || column >= K) return;
    float pairs[WARPS / 2];
#pragma unroll
    for (int i = 0; i < WARPS / 2; i++) pairs[i] = __fadd_rn(sums[2 * i][lane], sums[2 * i + 1][lane]);
    const float total = __fadd_rn(__fadd_rn(pairs[0], pairs[1]), __fadd_rn(pairs[2], pairs[3]));
    if constexpr (BYTES == 4)
        reinterpret_cast<float*>(dweight)[column] = total;
    else
        reinterpret_cast<uint16_t*>(dweight)[column] = static_cast<uint16_t>(encode_two<Half>(total, 0.0f));
}
