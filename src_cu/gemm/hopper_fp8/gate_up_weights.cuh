// Weights of gates and ups. B has 2 I rows. For each of its columns of the result, a tile has a gate and an up. Included by the SwiGLU kernels.
//
//     halves        gates are rows 0 to I - 1, ups the I rows after them
//     interleaved   gates are the even rows, ups the odd rows
//
// The copy engine sees both layouts as a tensor of four dimensions with different strides: K, number of the gate, gate or up, group. A box brings
// WEIGHTS / 2 gates and as many ups below them. Missing rows become zero. Only the tensor map depends on the layout.
//
// A scale of B is for 128 rows. 64 neighbouring gates share it, and so do 64 neighbouring ups: always if interleaved, and if I is a multiple of 64
// in halves. A tile has a scale for each 64 gates or ups, or fewer if it has fewer.
#pragma once

#include <cstdint>

#include "common/cluster.cuh"
#include "gemm/hopper_fp8/operands.cuh"
#include "gemm/schedule/tile_schedule.cuh"

namespace zoo {

template <int WEIGHTS>
constexpr int GATES_PER_SCALE = WEIGHTS / 2 < 64 ? WEIGHTS / 2 : 64;

// Schedules walk through tiles of the result, whose columns are a gate and an up each.
template <class Tile>
struct ResultTile {
    static constexpr int TOKENS = Tile::TOKENS, WEIGHTS = Tile::WEIGHTS / 2;
};

// A tile may have fewer columns than a scale block of the result. Then PARTS neighbouring CTAs of a cluster have its parts, and schedules walk
// through scale blocks.
template <class Tile>
struct ResultScaleBlock {
    static constexpr int TOKENS = Tile::TOKENS, WEIGHTS = SCALE_BLOCK, PARTS = WEIGHTS / ResultTile<Tile>::WEIGHTS;
};

// Few tokens. The rank of a CTA in its cluster is split * PARTS + part.
template <class Tile, int SPLITS>
struct SplitKPartSchedule {
    Work work;
    int columns;  // tiles along a row of the result
    bool given = false;

    __device__ __forceinline__ SplitKPartSchedule(int M, int I, int blocks) : columns(ceil_div(I, ResultTile<Tile>::WEIGHTS)) {
        using Block = ResultScaleBlock<Tile>;
        const int along = ceil_div(I, Block::WEIGHTS), index = blockIdx.x / (SPLITS * Block::PARTS);
        const int part = cluster_rank() % Block::PARTS, split = cluster_rank() / Block::PARTS;
        work = {index / along * Block::TOKENS,
                index % along * Block::WEIGHTS + part * ResultTile<Tile>::WEIGHTS,
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

// Many tokens. Both CTAs of a pair compute the same scale blocks, a half each.
template <class Schedule, class Tile>
struct PairSchedule : Schedule {
    template <class... Sizes>
    __device__ __forceinline__ explicit PairSchedule(Sizes... sizes) : Schedule(sizes...) {
        static_assert(ResultScaleBlock<Tile>::PARTS == 2);
        this->index = blockIdx.x / 2;
    }
    __device__ __forceinline__ bool next(Work& work) {
        if (!Schedule::next(work)) return false;
        this->index -= gridDim.x / 2;  // next() has advanced by the number of CTAs, but pairs advance together
        work.weight += cluster_rank() * ResultTile<Tile>::WEIGHTS;
        return true;
    }
};

// The weight of Work is a column of the result. TokenOperands loads the tokens: tensor copies, or threads that gather rows.
template <class Tile, class TokenOperands>
struct GateUpOperands : TokenOperands {
    static constexpr int GATE_SCALES = Tile::WEIGHT_SCALES / 2;
    static_assert(Tile::WEIGHTS_PER_SCALE == GATES_PER_SCALE<Tile::WEIGHTS>);

    int step, to_up;  // rows of B from gate to gate, and from a gate to its up

    __device__ __forceinline__ void prefetch_weights(const Work& work, int blocks) const {
        for (int block = work.first_block; block < min(work.end_block, work.first_block + blocks); block++)
            prefetch_box(this->b, block * SCALE_BLOCK, work.weight, 0, work.group);
    }

    __device__ __forceinline__ void load_weights(Tile& tile, int stage, const Work& work, int block) const {
        Barrier* full = &tile.full[stage];
        int token_rows = Tile::TOKENS;  // that tensor copies bring to the stage
        if constexpr (requires { this->token_rows(); }) token_rows = this->token_rows();
        if constexpr (requires { TokenOperands::GATHERS; }) {
            token_rows = 0;
            if constexpr (!Tile::SWAPPED) {
                const ScaleMatrix scales = scales_of_group(work);
                this->load_weight_scales(tile, stage, [&](int entry) {
                    const int row = scale_row(work, entry);
                    return row < scales.rows ? scales.first + row * scales.row_stride + block * scales.block_stride : nullptr;
                });
            }
        }
        arrive_expecting_bytes(full, (Tile::WEIGHTS + token_rows) * SCALE_BLOCK);
        load_box(tile.weights[stage], this->b, block * SCALE_BLOCK, work.weight, 0, work.group, full);
    }

    __device__ __forceinline__ void begin_weight(auto& scales, const Work& work, int entry) const {
        scales.begin(scales_of_group(work), scale_row(work, entry), work.first_block);
    }

   private:
    __device__ __forceinline__ ScaleMatrix scales_of_group(const Work& work) const {
        ScaleMatrix scales = this->b_scales;
        scales.first += work.group * this->b_scales_group_stride;
        return scales;
    }
    // Entries of gates come first, then entries of ups.
    __device__ __forceinline__ int scale_row(const Work& work, int entry) const {
        const int gate = work.weight + entry % GATE_SCALES * Tile::WEIGHTS_PER_SCALE;
        return (gate * step + (entry < GATE_SCALES ? 0 : to_up)) / SCALE_BLOCK;
    }
};

}  // namespace zoo
