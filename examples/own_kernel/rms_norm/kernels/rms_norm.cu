// rms_norm.bf16: y (M, N) = x / sqrt(mean of x^2 in its row + epsilon) * weight. One warp per row; a lane moves pairs of columns.
//
//     lane       0      1     ...    31       0
//     columns   0 1    2 3    ...   62 63   64 65 ...

#include "common/half.cuh"
#include "common/variant.cuh"

constexpr int LANES = 32;
constexpr unsigned ALL_LANES = 0xFFFFFFFF;

extern "C" __global__ void __launch_bounds__(LANES* Variant::WARPS) ZOO_KERNEL(ZOO_PARAMETERS) {
    const int64_t row = int64_t(blockIdx.x) * Variant::WARPS + threadIdx.x / LANES;
    const int lane = threadIdx.x % LANES;
    if (row >= M) return;                                                   // the whole warp
    const char* row_of_x = static_cast<const char*>(x) + 2 * row * stride;  // 2 bytes per element

    float sum = 0;
    for (int64_t column = 2 * lane; column < N; column += 2 * LANES) {
        const float2 two = zoo::load_two<Variant::x>(row_of_x + 2 * column);
        sum += two.x * two.x + two.y * two.y;
    }
    for (int distance = LANES / 2; distance > 0; distance /= 2) sum += __shfl_xor_sync(ALL_LANES, sum, distance);

    const float factor = rsqrtf(sum / float(N) + epsilon);
    for (int64_t column = 2 * lane; column < N; column += 2 * LANES) {
        const float2 two = zoo::load_two<Variant::x>(row_of_x + 2 * column);
        const float first = two.x * factor * weight[column], second = two.y * factor * weight[column + 1];
        y[(row * N + column) / 2] = zoo::encode_two<Variant::y>(first, second);
    }
}
