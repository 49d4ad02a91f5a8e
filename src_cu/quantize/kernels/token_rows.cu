// quantize.fp8token.rows: x (M, K), or its rows that an index names -> q, and a scale for every row. Memory-bound. Made of:
//
//   common/formats/fp8b128.cuh     the rule for a scale and its elements
//   rows/token_rows.cuh            the kernel: which warps have a row, how its largest magnitude is found
//   rows/matrix.cuh                where a warp's cells come from
//   rows/row_share.cuh             which columns a warp has, how lanes exchange words

#include "common/formats/fp8b128.cuh"
#include "common/variant.cuh"
#include "quantize/rows/matrix.cuh"
#include "quantize/rows/token_rows.cuh"

// x_stride in elements, q_stride in bytes.
extern "C" __global__ void __launch_bounds__(Variant::THREADS, Variant::CTAS) ZOO_KERNEL(ZOO_PARAMETERS) {
    using namespace zoo;
    quantize_token_rows<Variant::THREADS>(Fp8b128<Scaling::exact>{}, Matrix<Variant::x>{x, x_stride}, index, q, scales, M, K,
                                          q_stride, warps_of_row, fragments);
}
