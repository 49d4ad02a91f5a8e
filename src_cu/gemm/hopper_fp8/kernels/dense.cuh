// The kernel of gemm.fp8b128.dense. A .cu file that includes this header defines `Tile`, `DenseOperands`, `Schedule` and `Pipeline` first.
#pragma once

#include "gemm/hopper_fp8/store_rows.cuh"

namespace zoo {

constexpr int DYNAMIC_SHARED_BYTES = sizeof(Pipeline);
using D = OutputElement<Variant>::Type;

// A warpgroup with two passes has no registers left for C and row_scale.
constexpr bool ADDS = Variant::SWAPPED || Tile::PASSES == 1;

}  // namespace zoo

extern "C" __global__ void __launch_bounds__(zoo::Tile::THREADS, Variant::CTAS) ZOO_KERNEL(ZOO_PARAMETERS) {
    extern __shared__ __align__(1024) uint8_t memory[];
    const zoo::ScaleMatrix a_scales{a_scale, a_scale_row, a_scale_block, M, a_scale_is_ue8m0 != 0};
    const zoo::ScaleMatrix b_scales{b_scale, b_scale_row, b_scale_block, zoo::ceil_div(N, zoo::SCALE_BLOCK),
                                    b_scale_is_ue8m0 != 0};
    const zoo::DenseOperands operands{a, b, a_scales, b_scales, 0, 0, 0, N};
    const auto matrix = zoo::output_matrix<zoo::D>(d, d_stride, N, d_is_f16);
    const zoo::AddC<zoo::D> sum{matrix, zoo::ADDS ? c : nullptr, c_stride, c_is_bf16 != 0};
    const zoo::ScaleRows<zoo::AddC<zoo::D>> target{sum, zoo::ADDS ? row_scale : nullptr};
    reinterpret_cast<zoo::Pipeline*>(memory)->run(zoo::Schedule(M, N, blocks), operands, target, {true, b_is_constant != 0});
}
