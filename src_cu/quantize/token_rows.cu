// quantize.fp8token.rows: x (M, K), or its rows that an index names -> q, and a scale for every row.
//
// Everything is in token_rows.cuh. Memory-bound: of 32 elements, 64 bytes are read and 32 written, and about 200
// lane-instructions run.

#include "common/variant.cuh"
#include "quantize/fp8b128.cuh"
#include "quantize/token_rows.cuh"
#include "quantize/whole_blocks.cuh"

// x_stride in elements, q_stride in bytes.
extern "C" __global__ void __launch_bounds__(Variant::THREADS, Variant::CTAS)
    ZOO_KERNEL(const uint8_t* x, const int* index, uint8_t* q, float* scales, int32_t M, int32_t K, int64_t x_stride,
               int64_t q_stride, int32_t warps_of_row, int32_t fragments) {
    using namespace zoo;
    quantize_token_rows<Variant::THREADS>(Fp8b128<Scaling::exact>{}, Matrix<Variant::x>{x, x_stride}, index, q, scales, M, K,
                                          q_stride, warps_of_row, fragments);
}
