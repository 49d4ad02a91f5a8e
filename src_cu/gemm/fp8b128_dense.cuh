// The kernel of gemm.fp8b128.dense, once its source has said by which way: `Tile`, `From` (operands), `Order` and `Way`.
#pragma once

#include "gemm/epilogue/sum.cuh"

namespace zoo {

constexpr int DYNAMIC_SHARED_BYTES = sizeof(Way);
using D = ElementsOfD<Variant>::Type;

// With two waves a warpgroup has no registers left for C and factors.
constexpr bool ADDS = Variant::SWAPPED || Tile::WAVES == 1;

}  // namespace zoo

extern "C" __global__ void __launch_bounds__(zoo::Tile::THREADS, Variant::CTAS)
    ZOO_KERNEL(const __grid_constant__ zoo::TensorMap a, const __grid_constant__ zoo::TensorMap b, const uint8_t* a_scale,
               const uint8_t* b_scale, int a_scale_is_ue8m0, int b_scale_is_ue8m0, uint8_t* d, int M, int N, int blocks,
               int64_t a_scale_row, int64_t a_scale_block, int64_t b_scale_row, int64_t b_scale_block, int64_t d_stride,
               uint8_t* c, int64_t c_stride, int c_is_bf16, const float* row_scale, int b_is_constant, int d_is_f16) {
    extern __shared__ __align__(1024) uint8_t memory[];
    const zoo::Scales a_scales{a_scale, a_scale_row, a_scale_block, M, a_scale_is_ue8m0 != 0};
    const zoo::Scales b_scales{b_scale, b_scale_row, b_scale_block, zoo::tiles_of(N, zoo::SCALE_BLOCK), b_scale_is_ue8m0 != 0};
    const zoo::From operands{a, b, a_scales, b_scales, 0, 0, 0, N};
    const auto matrix = zoo::matrix_of<zoo::D>(d, d_stride, N, d_is_f16);
    const zoo::Sum<zoo::D> sum{matrix, zoo::ADDS ? c : nullptr, c_stride, c_is_bf16 != 0};
    const zoo::Scaled<zoo::Sum<zoo::D>> target{sum, zoo::ADDS ? row_scale : nullptr};
    reinterpret_cast<zoo::Way*>(memory)->run(zoo::Order(M, N, blocks), operands, target, {true, b_is_constant != 0});
}
