// gemm.{mxfp8,mxfp4,nvfp4}.k_grouped on Blackwell: D (M, N) of each group = A (M, K) B (N, K)^T over the group's range of K. These are weight
// gradients: K counts tokens, and quantize.<format>.cols.m_grouped_padded writes both operands.
//
//     k_grouped/tiles.cuh         where is tile `index`, and which K blocks and scales has its group? (schedule/tiles.cuh,
//                                 gemm/schedule/tile_schedule.cuh: bands of tiles)
//     tile.cuh                    what does a CTA hold in shared and tensor memory, and which barriers guard it?
//     pipeline.cuh                which warp does what, and which tile comes next?
//     load/elements.cuh           how do K blocks get into shared memory?
//     load/blocked_scales.cuh     how do their scales get there?
//     mainloop.cuh                how are they multiplied?
//     epilogue/sums.cuh           how do sums get from tensor memory into registers?
//     epilogue/finish.cuh         how do sums become elements of D?
//     epilogue/store_d.cuh        which lanes store which elements of D? (below: how is D added?)

#include "gemm/blackwell/epilogue/store_d.cuh"
#include "gemm/blackwell/k_grouped/tiles.cuh"
#include "gemm/blackwell/load/elements.cuh"

namespace zoo {

using Tile = TileOf<Variant>;
constexpr int DYNAMIC_SHARED_BYTES = sizeof(Tile);

// Eight sums of a row times alpha, plus D: Addend::add_to() with 16-byte loads.
__device__ __forceinline__ void add_eight(const Finish& finish, int row, float alpha, int column, float* sums) {
    const uint8_t* before = finish.d + (row * finish.d_stride + column) * (finish.dtype == OutputType::f32 ? 4 : 2);
    const uint4 first = load_16_bytes(before);
    uint32_t bits[8];
    if (finish.dtype == OutputType::f32) {
        const uint4 then = load_16_bytes(before + 16);
        bits[0] = first.x, bits[1] = first.y, bits[2] = first.z, bits[3] = first.w;
        bits[4] = then.x, bits[5] = then.y, bits[6] = then.z, bits[7] = then.w;
    } else {
        const uint32_t words[4] = {first.x, first.y, first.z, first.w};
#pragma unroll
        for (int i = 0; i < 8; i++) bits[i] = i % 2 ? words[i / 2] & 0xFFFF0000 : words[i / 2] << 16;
    }
#pragma unroll
    for (int i = 0; i < 8; i++) sums[i] = __fadd_rn(__fmul_rn(sums[i], alpha), __uint_as_float(bits[i]));
}

// D of the whole chunk is loaded before any of it is stored.
__device__ __forceinline__ void add_d(const Finish& finish, const TileWork& work, int lane, int first,
                                      float (&sums)[Tile::CHUNK]) {
    if (lane >= work.rows) return;
    const float alpha = finish.alpha_of(work.group);
#pragma unroll
    for (int i = 0; i < Tile::CHUNK; i += 8)
        if (first + i < work.columns) add_eight(finish, work.row + lane, alpha, work.column + first + i, &sums[i]);
}

}  // namespace zoo

extern "C" __global__ void __launch_bounds__(zoo::THREADS, 1) ZOO_KERNEL(ZOO_PARAMETERS) {
    using namespace zoo;
    extern __shared__ __align__(1024) uint8_t memory[];
    Tile& tile = *reinterpret_cast<Tile*>(memory);
    const KGroupedTiles<Tile> tiles{offsets, groups, M, N, weights, accumulate != 0};
    const BlockedScaleLoader<Tile, KGroupedScales<Tile>> scale_loader{{a_scale_map, a_scale, ceil_div(M, SCALE_TILE_ROWS)},
                                                                      {b_scale_map, b_scale, ceil_div(N, SCALE_TILE_ROWS)}};
    Pipeline<Tile> pipeline{tile, Tile::CTAS, walk_of(persistent != 0, false)};

    pipeline.run(tiles, ElementLoader<Tile>{a, b, box_rows}, scale_loader, types, K,
                 [&](SumsReader<Tile>& reader, const TileWork& work, int lane) {
                     const int row = pipeline.rank * LANES + lane;
                     const int64_t bytes = work.group * d_group * (d_type == OutputType::f32 ? 4 : 2);
                     const Finish finish{
                         .d = d + bytes, .d_stride = d_stride, .dtype = d_type, .alpha = alpha, .alpha_stride = alpha_stride};
                     Finish without_alpha = finish;
                     without_alpha.alpha = nullptr;
                     if (work.elements == 0) {
                         store_zeros<Tile>(finish, work, row);
                         return;
                     }
                     const StoreChunk<Tile> store(accumulate ? without_alpha : finish, work, row);
                     reader.read(tile, work, [&](int first, auto& sums) {
                         if (accumulate) add_d(finish, work, row, first, sums);
                         store(first, sums);
                     });
                 });
    pipeline.free_tensor_memory();
}
