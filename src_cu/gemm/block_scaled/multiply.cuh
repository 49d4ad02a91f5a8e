// The loop over K, by one warp, of a pair the first CTA's: it waits together, so that ptxas keeps what it counts in registers of the warp,
// and one of its threads copies a line's scales to tensor memory and starts its products.
#pragma once

#include "common/tensor_memory.cuh"
#include "gemm/block_scaled/tile.cuh"

namespace zoo {

// Where a role is in the rings of a tile.
template <class Tile>
struct Multiplier {
    using Kind = typename Tile::Kind;
    Ring<Tile::STAGES> ring = {};
    Ring<Tile::SCALE_STAGES> scale_ring = {};
    Ring<Tile::SCALE_BUFFERS> columns = {};
    int turn = 0;  // tiles begun

    // `types`: bits of the instruction's descriptor, of A and of B; `elements` of K in all. A tile without lines has no sums.
    __device__ __forceinline__ void run(Tile& tile, const ScaledWork& work, uint32_t types, int elements) {
        if (work.first_line == work.end_line) return;
        const int used = Sides<Tile>(work).used;
        const int right_tiles = (used + SCALE_TILE_ROWS - 1) / SCALE_TILE_ROWS;
        const uint32_t shape = types_of_sides(types) | mma_shape(Tile::LEFT_ROWS, used, 0, 0, Kind::UE8M0);
        const uint32_t tensor_memory = __shfl_sync(0xFFFFFFFF, tile.tensor_memory, 0);
        const uint32_t sums = tensor_memory + (turn % 2 ? Tile::SECOND : 0);
        wait_until_drained(tile);
        for (int line = work.first_line; line < work.end_line; line++) {
            const int left = min(elements, work.elements) - line * Kind::ELEMENTS_A_LINE;
            const int steps = min(STEPS, (left + Kind::ELEMENTS_A_STEP - 1) / Kind::ELEMENTS_A_STEP);
            const uint32_t a = shared_address(tile.stages[ring.stage].left), b = shared_address(tile.stages[ring.stage].right);
            const uint32_t a_scales = tensor_memory + Tile::FIRST_SCALE_COLUMN + columns.stage * Tile::SCALE_COLUMNS;
            const uint32_t b_scales = a_scales + 4 * Kind::SCALE_TILES;
            wait_for_published<Tile::CTAS>(&tile.scales_full[scale_ring.stage], scale_ring.parity);
            wait(&tile.columns_empty[columns.stage], columns.parity ^ 1);
            fence_after_taking_over();
            if (elected()) copy(tile.scales[scale_ring.stage], a_scales, b_scales, steps, right_tiles);
            wait(&tile.full[ring.stage], ring.parity);
            fence_after_taking_over();
            if (elected()) {
#pragma unroll
                for (int step = 0; step < STEPS; step++) {
                    if (step >= steps) break;
                    constexpr int EACH = Kind::SCALES_A_STEP;
                    const int scale_tile = step * EACH / SCALES_A_TILE_ROW;
                    multiply<Tile::CTAS, Kind::MMA>(
                        sums, matrix_of_lines(a + step * (LINE_BYTES / STEPS)), matrix_of_lines(b + step * (LINE_BYTES / STEPS)),
                        shape | scales_at_byte(step * EACH % SCALES_A_TILE_ROW), a_scales + 4 * scale_tile,
                        b_scales + 4 * Tile::RIGHT_TILES * scale_tile, line > work.first_line || step > 0);
                }
                arrive_in_all_after_products<Tile::CTAS>(&tile.empty[ring.stage]);
                arrive_in_all_after_products<Tile::CTAS>(&tile.scales_empty[scale_ring.stage]);
                arrive_after_products<Tile::CTAS>(&tile.columns_empty[columns.stage]);
            }
            __syncwarp();
            ring.advance();
            scale_ring.advance();
            columns.advance();
        }
        if (elected()) arrive_in_all_after_products<Tile::CTAS>(&tile.ready[turn % 2]);
        __syncwarp();
        turn++;
    }

   private:
    __device__ __forceinline__ static uint32_t types_of_sides(uint32_t types) {
        constexpr uint32_t TYPE = 0b111 << 7;  // of the left operand; that of the right one has the three bits after it
        return Tile::SWAPPED ? (types & TYPE) << 3 | (types >> 3 & TYPE) : types;
    }

    // Of overlapping sums: the tile before has been read as far as it shares columns with this one, and the one before it altogether.
    // Of others: the tile that had the same columns.
    __device__ __forceinline__ void wait_until_drained(Tile& tile) const {
        const int before = turn - (Tile::OVERLAPPED ? 1 : 2);
        if (before >= 0) wait(&tile.drained[before % 2], before / 2 % 2);
        fence_after_taking_over();
    }

    // Of a tile of scales that no step reads, nothing.
    __device__ __forceinline__ void copy(const typename Tile::ScaleStage& scales, uint32_t a_scales, uint32_t b_scales, int steps,
                                         int right_tiles) const {
        const uint32_t left = shared_address(scales.left), right = shared_address(scales.right);
#pragma unroll
        for (int i = 0; i < Kind::SCALE_TILES; i++) {
            if (i * SCALES_A_TILE_ROW >= steps * Kind::SCALES_A_STEP) break;
            copy_scales<Tile::CTAS>(a_scales + 4 * i, matrix_of_scales(left + i * SCALE_TILE_BYTES));
#pragma unroll
            for (int j = 0; j < Tile::RIGHT_TILES; j++)
                if (j < right_tiles)
                    copy_scales<Tile::CTAS>(b_scales + 4 * (i * Tile::RIGHT_TILES + j),
                                            matrix_of_scales(right + j * Tile::SCALE_LINE_BYTES + i * SCALE_TILE_BYTES));
        }
    }
};

}  // namespace zoo
