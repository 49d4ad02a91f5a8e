// quantize.fp8token.rows.swiglu: x (M, 2 K) -> q (M, K) of silu(gate) * up, and a scale for every row. Made of:
//
//   common/formats/fp8b128.cuh     the rule for a scale and its elements
//   rows/token_rows.cuh            the kernel: which warps have a row, how its largest magnitude is found
//   rows/swiglu.cuh                where gates and ups come from, silu(gate) * up
//   rows/row_share.cuh             which columns a warp has, how lanes exchange words
//
// Results stay in registers as float32 until the row's scale is known.

#include "common/formats/fp8b128.cuh"
#include "common/variant.cuh"
#include "quantize/rows/swiglu.cuh"
#include "quantize/rows/token_rows.cuh"

// Strides as in kernels/token_rows.cu.
extern "C" __global__ void __launch_bounds__(Variant::THREADS, Variant::CTAS) ZOO_KERNEL(ZOO_PARAMETERS) {
    using namespace zoo;
    quantize_token_rows<Variant::THREADS>(Fp8b128<Scaling::exact>{}, Swiglu<Variant::x>(x, x_stride, K, interleaved), nullptr, q,
                                          scales, M, K, q_stride, warps_of_row, fragments);
}
