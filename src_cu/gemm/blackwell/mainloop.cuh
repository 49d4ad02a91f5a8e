// The loop over K blocks: one warp copies scales to tensor memory and issues tcgen05.mma. pipeline.cuh includes it.
//
// The whole warp waits, so that ptxas keeps counters in uniform registers. One elected thread copies and multiplies.
#pragma once

#include "common/tensor_memory.cuh"
#include "gemm/blackwell/schedule/tiles.cuh"

namespace zoo {

template <class Tile>
struct Mainloop {
    using Format = typename Tile::Format;
    Ring<Tile::STAGES> ring = {};
    Ring<Tile::SCALE_STAGES> scale_ring = {};
    Ring<Tile::SCALE_BUFFERS> columns = {};
    int tiles = 0;  // started

    // `types` are bits of the instruction descriptor, for tokens and weights; `elements` is K. A tile without K blocks has no sums.
    __device__ __forceinline__ void run(Tile& tile, const TileWork& work, uint32_t types, int elements) {
        if (work.first_block == work.end_block) return;
        const int n = MmaRows<Tile>(work).columns;
        const int b_scale_tiles = (n + SCALE_TILE_ROWS - 1) / SCALE_TILE_ROWS;
        const uint32_t shape = mma_types(types) | instruction_descriptor(Tile::MMA_A_ROWS, n, 0, 0, Format::UE8M0);
        const uint32_t tensor_memory = __shfl_sync(0xFFFFFFFF, tile.tensor_memory, 0);
        const uint32_t sums = tensor_memory + (tiles % 2 ? Tile::SECOND_SUMS : 0);
        wait_for_empty_sums(tile);
        for (int block = work.first_block; block < work.end_block; block++) {
            const int left = min(elements, work.elements) - block * Format::K_BLOCK_ELEMENTS;
            const int steps = min(K_STEPS, (left + Format::STEP_ELEMENTS - 1) / Format::STEP_ELEMENTS);
            const uint32_t a = shared_address(tile.stages[ring.stage].mma_a), b = shared_address(tile.stages[ring.stage].mma_b);
            const uint32_t a_scales = tensor_memory + Tile::FIRST_SCALE_COLUMN + columns.stage * Tile::SCALE_COLUMNS;
            const uint32_t b_scales = a_scales + 4 * Format::SCALE_TILES;
            wait_for_published<Tile::CTAS>(&tile.scales_full[scale_ring.stage], scale_ring.parity);
            wait(&tile.scale_columns_empty[columns.stage], columns.parity ^ 1);
            fence_after_taking_over();
            if (elected()) copy_scales_of_block(tile.scales[scale_ring.stage], a_scales, b_scales, steps, b_scale_tiles);
            wait(&tile.full[ring.stage], ring.parity);
            fence_after_taking_over();
            if (elected()) {
#pragma unroll
                for (int step = 0; step < K_STEPS; step++) {
                    if (step >= steps) break;
                    constexpr int EACH = Format::STEP_SCALES;
                    const int scale_tile = step * EACH / SCALE_TILE_COLUMNS;
                    multiply<Tile::CTAS, Format::MMA>(
                        sums, operand_descriptor(a + step * (K_BLOCK_BYTES / K_STEPS)),
                        operand_descriptor(b + step * (K_BLOCK_BYTES / K_STEPS)),
                        shape | scales_at_byte(step * EACH % SCALE_TILE_COLUMNS), a_scales + 4 * scale_tile,
                        b_scales + 4 * Tile::MMA_B_SCALE_TILES * scale_tile, block > work.first_block || step > 0);
                }
                arrive_in_all_after_multiplications<Tile::CTAS>(&tile.empty[ring.stage]);
                arrive_in_all_after_multiplications<Tile::CTAS>(&tile.scales_empty[scale_ring.stage]);
                arrive_after_multiplications<Tile::CTAS>(&tile.scale_columns_empty[columns.stage]);
            }
            __syncwarp();
            ring.advance();
            scale_ring.advance();
            columns.advance();
        }
        if (elected()) arrive_in_all_after_multiplications<Tile::CTAS>(&tile.sums_full[tiles % 2]);
        __syncwarp();
        tiles++;
    }

   private:
    // Exchanges the types of tokens and weights where weights are MMA operand A.
    __device__ __forceinline__ static uint32_t mma_types(uint32_t types) {
        constexpr uint32_t TYPE = 0b111 << 7;  // of MMA operand A; the next three bits are the type of B
        return Tile::SWAPPED ? (types & TYPE) << 3 | (types >> 3 & TYPE) : types;
    }

    // If sums overlap, the epilogue must have read the previous tile's shared columns. Else it must have read the tile before the previous one.
    __device__ __forceinline__ void wait_for_empty_sums(Tile& tile) const {
        const int before = tiles - (Tile::OVERLAPPED ? 1 : 2);
        if (before >= 0) wait(&tile.sums_empty[before % 2], before / 2 % 2);
        fence_after_taking_over();
    }

    // Skips scale tiles that no step reads.
    __device__ __forceinline__ void copy_scales_of_block(const typename Tile::ScaleStage& scales, uint32_t a_scales,
                                                         uint32_t b_scales, int steps, int b_scale_tiles) const {
        const uint32_t a = shared_address(scales.mma_a), b = shared_address(scales.mma_b);
#pragma unroll
        for (int i = 0; i < Format::SCALE_TILES; i++) {
            if (i * SCALE_TILE_COLUMNS >= steps * Format::STEP_SCALES) break;
            copy_scales<Tile::CTAS>(a_scales + 4 * i, scale_descriptor(a + i * SCALE_TILE_BYTES));
#pragma unroll
            for (int j = 0; j < Tile::MMA_B_SCALE_TILES; j++)
                if (j < b_scale_tiles)
                    copy_scales<Tile::CTAS>(b_scales + 4 * (i * Tile::MMA_B_SCALE_TILES + j),
                                            scale_descriptor(b + j * Tile::SCALE_BYTES + i * SCALE_TILE_BYTES));
        }
    }
};

}  // namespace zoo
