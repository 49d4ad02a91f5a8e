// B of gates and ups: 2 I rows, of which a tile takes as many gates as ups, those of the same columns of the result.
//
//     halves        gates are rows 0 to I - 1, ups the I rows after them
//     interleaved   gates are the even rows, ups the odd ones
//
// To the copy engine both are one tensor with other strides: K, which gate or up, which of the two, the group. So a box brings
// WEIGHTS / 2 gates and below them as many ups, what does not exist is zero, and nothing behind the copy knows which it was.
//
// A scale of B is for 128 rows: of 64 neighbouring gates all have the same, as 64 neighbouring ups do, if I is a multiple of 64
// (halves), or in any case (interleaved). A tile has a scale for each 64, or for as many as it has.
#pragma once

#include <cstdint>
#include <type_traits>

#include "common/cluster.cuh"
#include "gemm/load/operands.cuh"
#include "gemm/schedule/tile_order.cuh"

namespace zoo {

template <int WEIGHTS>
constexpr int GATES_A_SCALE = WEIGHTS / 2 < 64 ? WEIGHTS / 2 : 64;

// What an order goes through: the columns of the result, a gate and an up each.
template <class Tile>
struct TileOfResult {
    static constexpr int TOKENS = Tile::TOKENS, WEIGHTS = Tile::WEIGHTS / 2;
};

// Where a tile has fewer columns than share a scale of the result, CTAs of a cluster next to each other have the parts of a
// block, and orders go through blocks.
template <class Tile>
struct BlockOfResult {
    static constexpr int TOKENS = Tile::TOKENS, WEIGHTS = SCALE_BLOCK, PARTS = WEIGHTS / TileOfResult<Tile>::WEIGHTS;
};

// Few tokens: rank split * PARTS + part of a cluster.
template <class Tile, int SPLITS>
struct PartedSplitOrder {
    Work work;
    int columns;  // of tiles
    bool given = false;

    __device__ __forceinline__ PartedSplitOrder(int M, int I, int blocks) : columns(tiles_of(I, TileOfResult<Tile>::WEIGHTS)) {
        using Block = BlockOfResult<Tile>;
        const int along = tiles_of(I, Block::WEIGHTS), index = blockIdx.x / (SPLITS * Block::PARTS);
        const int part = cluster_rank() % Block::PARTS, split = cluster_rank() / Block::PARTS;
        work = {index / along * Block::TOKENS,
                index % along * Block::WEIGHTS + part * TileOfResult<Tile>::WEIGHTS,
                M,
                0,
                int(int64_t(blocks) * split / SPLITS),
                int(int64_t(blocks) * (split + 1) / SPLITS)};
    }

    __device__ __forceinline__ bool next(Work& result) {
        if (given) return false;
        result = work;
        return given = true;
    }
};

// Many tokens: both CTAs of a cluster take the same blocks, a half each.
template <class Order, class Tile>
struct OrderOfPairs : Order {
    template <class... Sizes>
    __device__ __forceinline__ explicit OrderOfPairs(Sizes... sizes) : Order(sizes...) {
        static_assert(BlockOfResult<Tile>::PARTS == 2);
        this->index = blockIdx.x / 2;
    }
    __device__ __forceinline__ bool next(Work& work) {
        if (!Order::next(work)) return false;
        this->index -= gridDim.x / 2;  // of all CTAs, which it has gone on by, half are the other one of a pair
        work.weight += cluster_rank() * TileOfResult<Tile>::WEIGHTS;
        return true;
    }
};

// The weight of Work is a column of the result. From: where tokens come from.
template <class Tile, class From>
struct GatedOperands : From {
    static constexpr int SCALES_OF_GATES = Tile::WEIGHT_SCALES / 2;
    static_assert(Tile::WEIGHTS_A_SCALE == GATES_A_SCALE<Tile::WEIGHTS>);

    int step, to_up;  // in rows of B: from gate to gate, from a gate to its up

    __device__ __forceinline__ void prefetch_weights(const Work& work, int blocks) const {
        for (int block = work.first_block; block < min(work.end_block, work.first_block + blocks); block++)
            prefetch_box(this->b, block * SCALE_BLOCK, work.weight, 0, work.group);
    }

    __device__ __forceinline__ void load_weights(Tile& tile, int stage, const Work& work, int block) const {
        int token_rows = Tile::TOKENS;
        if constexpr (requires { this->token_rows(); }) token_rows = this->token_rows();
        arrive_expecting_bytes(&tile.full[stage], (Tile::WEIGHTS + token_rows) * SCALE_BLOCK);
        load_box(tile.weights[stage], this->b, block * SCALE_BLOCK, work.weight, 0, work.group, &tile.full[stage]);
    }

    // First those of the gates, then those of the ups.
    __device__ __forceinline__ void begin_weight(auto& scales, const Work& work, int which) const {
        const int gate = work.weight + which % SCALES_OF_GATES * Tile::WEIGHTS_A_SCALE;
        const int row = gate * step + (which < SCALES_OF_GATES ? 0 : to_up);
        scales.begin(this->of_group(this->b_scales, work, this->b_scales_group_stride), row / SCALE_BLOCK, work.first_block);
    }
};

}  // namespace zoo
