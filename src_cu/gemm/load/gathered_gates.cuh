// Rows of A through an index (gathered_rows.cuh) times gates and ups (gated.cuh).
#pragma once

#include <cstdint>

#include "gemm/load/gated.cuh"
#include "gemm/load/gathered_rows.cuh"

namespace zoo {

// The weight of Work is a column of the result.
template <class Tile>
struct GatheredGates : GatheredOperands<Tile> {
    static constexpr int SCALES_OF_GATES = Tile::WEIGHT_SCALES / 2;
    static_assert(Tile::WEIGHTS_A_SCALE == GATES_A_SCALE<Tile::WEIGHTS>);

    int step, to_up;  // in rows of B: from gate to gate, from a gate to its up

    // By the copying thread.
    __device__ __forceinline__ void load_weights(Tile& tile, int stage, const Work& work, int block) const {
        Barrier* full = &tile.full[stage];
        if constexpr (!Tile::SWAPPED) {
            const Scales scales = scales_of_group(work);
            this->bring_weight_scales(tile, stage, [&](int which) {
                const int row = scale_row(work, which);
                return row < scales.rows ? scales.first + row * scales.row_stride + block * scales.block_stride : nullptr;
            });
        }
        arrive_expecting_bytes(full, Tile::WEIGHTS * SCALE_BLOCK);
        load_box(tile.weights[stage], this->b, block * SCALE_BLOCK, work.weight, 0, work.group, full);
    }

    // First those of the gates, then those of the ups.
    __device__ __forceinline__ void begin_weight(auto& scales, const Work& work, int which) const {
        scales.begin(scales_of_group(work), scale_row(work, which), work.first_block);
    }

   private:
    __device__ __forceinline__ Scales scales_of_group(const Work& work) const {
        Scales scales = this->b_scales;
        scales.first += work.group * this->b_scales_group_stride;
        return scales;
    }
    __device__ __forceinline__ int scale_row(const Work& work, int which) const {
        const int gate = work.weight + which % SCALES_OF_GATES * Tile::WEIGHTS_A_SCALE;
        return (gate * step + (which < SCALES_OF_GATES ? 0 : to_up)) / SCALE_BLOCK;
    }
};

}  // namespace zoo
