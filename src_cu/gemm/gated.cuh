// B of gates and ups: 2 I rows, of which a tile takes as many gates as ups, those of the same columns of the result.
//
//     halves        gates are rows 0 to I - 1, ups the I rows after them
//     interleaved   gates are the even rows, ups the odd ones
//
// To the copy engine both are one tensor with other strides: K, which gate or up, which of the two, the group. So a box brings
// WEIGHTS / 2 gates and below them as many ups, what does not exist is zero, and nothing behind the copy knows which it was.
//
// A scale of B is for 128 rows: of 64 neighbouring gates all have the same, as 64 neighbouring ups do, if I is a multiple of 64
// (halves), or in any case (interleaved). A tile has a scale for each 64.
#pragma once

#include <cstdint>

#include "gemm/operands.cuh"

namespace zoo {

constexpr int GATES_A_SCALE = 64;

// What an order goes through: the columns of the result, a gate and an up each.
template <class Tile>
struct TileOfResult {
    static constexpr int TOKENS = Tile::TOKENS, WEIGHTS = Tile::WEIGHTS / 2;
};

// The weight of Work is a column of the result.
template <class Tile>
struct GatedOperands : Operands<Tile> {
    static constexpr int SCALES_OF_GATES = Tile::WEIGHT_SCALES / 2;
    static_assert(Tile::WEIGHTS_A_SCALE == GATES_A_SCALE);

    int step, to_up;  // in rows of B: from gate to gate, from a gate to its up

    __device__ __forceinline__ void prefetch_weights(const Work& work, int blocks) const {
        for (int block = work.first_block; block < min(work.end_block, work.first_block + blocks); block++)
            prefetch_box(this->b, block * SCALE_BLOCK, work.weight, 0, work.group);
    }

    __device__ __forceinline__ void load_elements(Tile& tile, int stage, const Work& work, int block) const {
        Barrier* full = &tile.full[stage];
        arrive_expecting_bytes(full, Tile::STAGE_BYTES);
        load_box(tile.weights[stage], this->b, block * SCALE_BLOCK, work.weight, 0, work.group, full);
        load_box(tile.tokens[stage], this->a, block * SCALE_BLOCK, work.token, full);
    }

    // First those of the gates, then those of the ups.
    __device__ __forceinline__ void begin_weight(RowScales& scales, const Work& work, int which) const {
        const int gate = work.weight + which % SCALES_OF_GATES * GATES_A_SCALE;
        const int row = gate * step + (which < SCALES_OF_GATES ? 0 : to_up);
        scales.begin(this->of_group(this->b_scales, work, this->b_scales_group_stride), row / SCALE_BLOCK, work.first_block);
    }
};

}  // namespace zoo
