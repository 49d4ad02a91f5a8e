// quantize.fp8token.rows.swiglu: x (M, 2 K) -> q (M, K) of activation(gate) * up, and a scale for every row. Made of:
//
//   common/formats/fp8b128.cuh     the rule for a scale and its elements
//   rows/token_rows.cuh            the kernel: which warps have a row, how its largest magnitude is found
//   rows/gated.cuh                 where gates and ups come from, alpha of a row's group, the activation
//   rows/row_share.cuh             which columns a warp has, how lanes exchange words
//
// Results stay in registers as float32 until the row's scale is known. With offsets, rows after the last group are neither read nor written.

#include "common/dependent_launch.cuh"
#include "common/formats/fp8b128.cuh"
#include "common/global_memory.cuh"
#include "common/variant.cuh"
#include "quantize/rows/gated.cuh"
#include "quantize/rows/token_rows.cuh"

using zoo::ActivationKind;
using zoo::Gates;

// Strides as in kernels/token_rows.cu.
extern "C" __global__ void __launch_bounds__(Variant::THREADS, Variant::CTAS) ZOO_KERNEL(ZOO_PARAMETERS) {
    using namespace zoo;
    __shared__ float alphas[Variant::THREADS / 32][2];
    int rows = M;
    if (offsets != nullptr) {
        wait_for_previous_kernel();  // which may have written the ends
        rows = min(M, load_int(offsets + groups - 1));
    }
    const Gated<Variant::x> source(x, x_stride, K, gates, {alpha, offsets, groups, alphas}, activation, limit);
    quantize_token_rows<Variant::THREADS>(Fp8b128<Scaling::exact>{}, source, nullptr, q, scales, rows, K, q_stride, warps_of_row,
                                          fragments);
}
