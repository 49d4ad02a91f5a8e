// gemm.fp8b128.dense: D (M, N) = A (M, K) B (N, K)^T, e4m3 with scales, one for 1 x 128 of A, whose rows are called
// tokens, and one for 128 x 128 of B, whose rows are called weights.
//
// Two to four warps load tiles and scales into a ring of stages; one to three warpgroups multiply, promote and store. The
// parts, one question each:
//
//     fp8b128_tile.cuh       the tile and its ring of stages: what lies where, who arrives where
//     operands.cuh           where elements and scales come from
//     fp8b128_mainloop.cuh   load, multiply, promote: the loop over K
//     tile_order.cuh         who computes which tile, when
//     shared_tokens.cuh      what several CTAs of a cluster take together
//     store_rows.cuh, store_reduced.cuh, pushed_sums.cuh, sum.cuh     from sums to D
//     shared_rest.cuh, many_tokens.cuh, tiles_ahead.cuh, few_tokens.cuh, split_rows.cuh     the ways of putting them together

#include <type_traits>

#include "gemm/few_tokens.cuh"
#include "gemm/many_tokens.cuh"
#include "gemm/shared_rest.cuh"
#include "gemm/shared_tokens.cuh"
#include "gemm/split_rows.cuh"
#include "gemm/sum.cuh"
#include "gemm/tile_order.cuh"
#include "gemm/tiles_ahead.cuh"

namespace zoo {

// Few variants have it.
template <class V>
constexpr int sharers() {
    if constexpr (requires { V::SHARERS; }) return V::SHARERS;
    return 1;
}

constexpr bool SHARES = sharers<Variant>() > 1, MANY = !Variant::SWAPPED && Variant::IN_TURN;
using OwnTile =
    Fp8b128Tile<Variant::TOKENS, Variant::WEIGHTS, Variant::STAGES, Variant::WARPGROUPS, Variant::SWAPPED, Variant::OVERLAPPED>;
using Tile = std::conditional_t<SHARES, SharingTile<OwnTile, sharers<Variant>()>, OwnTile>;
constexpr bool RESTS = shares_rest<Variant>;
using Own = std::conditional_t<MANY && !RESTS, Operands<Tile>, FewOperands<Tile>>;
using From = std::conditional_t<SHARES, SharedOperands<Tile>, Own>;
constexpr bool PUSHED = Variant::SWAPPED && Variant::SPLITS > 1, SENT = !Variant::SWAPPED && Variant::SPLITS > 1;
using Apart = std::conditional_t<SENT, SplitRows<Tile>, FewTokens<Tile, Variant::SPLITS>>;
using Split = std::conditional_t<PUSHED, FewTokensPushed<Tile, Variant::SPLITS>, Apart>;
using Few = std::conditional_t<Variant::IN_TURN, FewTokensInTurn<Tile>, Split>;
using Many = std::conditional_t<goes_ahead<Variant>, TilesAhead<Tile>, ManyTokens<Tile>>;
using Way = std::conditional_t<RESTS, SharedRest<Tile>, std::conditional_t<MANY, Many, Few>>;
using OfCluster = std::conditional_t<SHARES, SharedOrder<Tile, Variant::SPLITS>, SplitOrder<Tile, Variant::SPLITS>>;
using Whole = std::conditional_t<Variant::IN_TURN, DenseOrder<Tile, Variant::BAND>, OfCluster>;
using Order = std::conditional_t<RESTS, RestOrder<Tile, Variant::BAND>, Whole>;
using D = ElementsOfD<Variant>::Type;
constexpr int DYNAMIC_SHARED_BYTES = sizeof(Way);

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
