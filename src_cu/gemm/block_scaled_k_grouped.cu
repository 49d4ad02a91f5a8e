// gemm.{mxfp8,mxfp4,nvfp4}.k_grouped: D (M, N) of each group = A (M, K) B (N, K)^T over the group's range of K. Weight gradients: K
// counts tokens, and both operands are what quantize.<format>.cols.m_grouped_padded writes.
//
// As block_scaled_dense.cu with tokens as rows, but that along_k.cuh says where tiles lie. What D was is added on the way from tensor
// memory; a group without elements has no sums, and is zero.

#include "gemm/block_scaled/along_k.cuh"
#include "gemm/block_scaled/chosen.cuh"

namespace zoo {

using Tile = TileOf<Variant>;
constexpr int DYNAMIC_SHARED_BYTES = sizeof(Tile);

// Eight sums of a row, times alpha, and what D has there. As c (finish.cuh), but 16 bytes an access.
__device__ __forceinline__ void add_eight(const Finish& finish, int row, float alpha, int column, float* sums) {
    const uint8_t* before = finish.d + (row * finish.d_stride + column) * (finish.dtype == Stored::f32 ? 4 : 2);
    const uint4 first = load_16_bytes(before);
    uint32_t bits[8];
    if (finish.dtype == Stored::f32) {
        const uint4 then = load_16_bytes(before + 16);
        bits[0] = first.x, bits[1] = first.y, bits[2] = first.z, bits[3] = first.w;
        bits[4] = then.x, bits[5] = then.y, bits[6] = then.z, bits[7] = then.w;
    } else {
        const uint32_t pairs[4] = {first.x, first.y, first.z, first.w};
#pragma unroll
        for (int i = 0; i < 8; i++) bits[i] = i % 2 ? pairs[i / 2] & 0xFFFF0000 : pairs[i / 2] << 16;
    }
#pragma unroll
    for (int i = 0; i < 8; i++) sums[i] = __fadd_rn(__fmul_rn(sums[i], alpha), __uint_as_float(bits[i]));
}

// All that D has of a chunk is on its way before the first of it is stored.
__device__ __forceinline__ void add_what_was(const Finish& finish, const ScaledWork& work, int lane, int first,
                                             float (&sums)[Tile::CHUNK]) {
    if (lane >= work.rows) return;
    const float alpha = finish.alpha_of(work.group);
#pragma unroll
    for (int i = 0; i < Tile::CHUNK; i += 8)
        if (first + i < work.columns) add_eight(finish, work.row + lane, alpha, work.column + first + i, &sums[i]);
}

}  // namespace zoo

extern "C" __global__ void __launch_bounds__(zoo::THREADS_OF_ROLES, 1)
    ZOO_KERNEL(const __grid_constant__ zoo::TensorMap a, const __grid_constant__ zoo::TensorMap b,
               const __grid_constant__ zoo::TensorMap a_scale_map, const __grid_constant__ zoo::TensorMap b_scale_map,
               const uint8_t* a_scale, const uint8_t* b_scale, const int* offsets, int groups, int M, int N, int K, int types,
               int weights, int right_box, int asks, uint8_t* d, int64_t d_group, int64_t d_stride, int dtype, int accumulate,
               const float* alpha, int alpha_stride) {
    using namespace zoo;
    extern __shared__ __align__(1024) uint8_t memory[];
    Tile& tile = *reinterpret_cast<Tile*>(memory);
    const MatricesAlongK<Tile> order{offsets, groups, M, N, weights, accumulate != 0};
    const ScalesOfBoth<Tile, BlockedScalesAlongK<Tile>> scales_of_both{{a_scale_map, a_scale, tiles_of(M, SCALE_TILE_ROWS)},
                                                                       {b_scale_map, b_scale, tiles_of(N, SCALE_TILE_ROWS)}};
    Product<Tile> product{tile, Tile::CTAS, asks != 0};

    product.run(order, Elements<Tile>{a, b, right_box}, scales_of_both, types, K,
                [&](Drain<Tile>& drain, const ScaledWork& work, int lane) {
                    const int row = product.rank * LANES + lane;
                    const int64_t bytes = work.group * d_group * (Stored(dtype) == Stored::f32 ? 4 : 2);
                    Finish finish{d + bytes,    d_stride, Stored(dtype), alpha,        alpha_stride,
                                  {nullptr, 0}, 0,        nullptr,       {nullptr, 0}, 0};
                    Finish plain = finish;
                    plain.alpha = nullptr;
                    if (work.elements == 0) {
                        store_zeros<Tile>(finish, work, row);
                        return;
                    }
                    drain.run(tile, work, [&](int first, auto& sums) {
                        if (accumulate) add_what_was(finish, work, row, first, sums);
                        store_chunk<Tile>(accumulate ? plain : finish, work, row, first, sums);
                    });
                });
    product.free();
}
