// As four_bit_scales.cu, for many tokens of one matrix or of groups: weights are decoded once, into a workspace (four_bit/decode_once.cuh).
// a_block_scale may be null where sums are promoted without it.

#include "gemm/four_bit/way.cuh"

namespace zoo {

template <class Scales>
__device__ __forceinline__ Scales scales_or_nothing(const float* first, int64_t row_stride, int64_t block_stride,
                                                    int64_t group_stride, int blocks) {
    if constexpr (std::is_same_v<Scales, Nothing>)
        return {};
    else
        return {first, row_stride, block_stride, group_stride, blocks};
}

}  // namespace zoo

extern "C" __global__ void __launch_bounds__(zoo::Tile::THREADS, Variant::CTAS)
    ZOO_KERNEL(const __grid_constant__ zoo::TensorMap a, const uint8_t* b, uint8_t* d, int64_t d_stride, int d_kind,
               const int* places, int groups, int rows, int box_rows, int N, int tiles, int chunks, const float* a_scale,
               const float* alpha, const uint8_t* largest, const uint8_t* bias, int bias_is_bf16, const float* row_scale,
               const float* a_block_scale, int64_t a_scale_row, int64_t a_scale_block, int64_t a_scale_group,
               uint8_t* workspace) {
    extern __shared__ __align__(1024) uint8_t memory[];
    using Operands = zoo::FourBitOperands<zoo::Tile>;
    const Operands operands{a,
                            {b, tiles, chunks},
                            box_rows,
                            zoo::scales_or_nothing<decltype(Operands::scales)>(a_block_scale, a_scale_row, a_scale_block,
                                                                               a_scale_group, zoo::tiles_of(chunks, 2))};
    const zoo::FourBitResult<zoo::Tile::FORMAT> result{d, d_stride, d_kind,  N,    a_scale,           nullptr,
                                                       0, alpha,    largest, bias, bias_is_bf16 != 0, row_scale};
    const int blocks = zoo::tiles_of(chunks, zoo::PROMOTED_CHUNKS);
    const auto order = [&] { return zoo::order_of<zoo::Order>(places, groups, rows, box_rows, N, blocks); };
    const auto space = [&] {
        return zoo::DecodedSpace<zoo::Tile::TOKENS, Variant::BAND>{workspace,
                                                                   {{places, rows}, groups},
                                                                   zoo::tiles_of(N, zoo::Tile::WEIGHTS),
                                                                   blocks * (zoo::PROMOTED_CHUNKS / zoo::Tile::CHUNKS),
                                                                   box_rows};
    };
    reinterpret_cast<zoo::Way*>(memory)->run(order, operands, zoo::IndexedRows{}, result, space);
}
