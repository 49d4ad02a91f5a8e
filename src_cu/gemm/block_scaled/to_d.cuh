// A product whose sums go to D, of whole lines of K or, where tokens are few, of a cluster's shares of them.
#pragma once

#include "gemm/block_scaled/product.cuh"
#include "gemm/block_scaled/split_lines.cuh"

namespace zoo {

template <class Tile, class Order, class Elements, class Scales>
__device__ __forceinline__ void compute(Tile& tile, const Order& order, const Elements& elements, const Scales& scales,
                                        uint32_t types, int K, const Finish& finish, bool asks) {
    const int splits = order.share.splits, split = order.share.split;
    Product<Tile> product{tile, Tile::CTAS * splits, asks};
    product.run(order, elements, scales, types, K, [&](Drain<Tile>& drain, const ScaledWork& work, int lane) {
        drain.run(tile, work, [&](int first, auto& sums) {
            if (!Tile::SWAPPED || splits == 1)
                store_chunk<Tile>(finish, work, product.rank * LANES + lane, first, sums);
            else if constexpr (Tile::SWAPPED)
                PartialSums<Tile>::of(tile).lay_down(work, lane, first, sums);
        });
    });
    if constexpr (Tile::SWAPPED) {
        if (splits > 1) {
            synchronise_cluster();
            ScaledWork work;
            const int lane = int(threadIdx.x) - (THREADS_OF_ROLES - LANES);
            if (lane >= 0 && order.at(blockIdx.x / splits, work))
                PartialSums<Tile>::of(tile).store(finish, work, lane, split, splits);
        }
    }
    product.free();
}

}  // namespace zoo
