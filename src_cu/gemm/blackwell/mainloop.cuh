// The loop over K blocks: one warp copies scales to tensor memory and issues tcgen05.mma. pipeline.cuh includes it.
//
// The whole warp waits, so that ptxas keeps counters in uniform registers. One elected thread copies and multiplies. The loop takes two whole
// K blocks at a time, because K blocks alternate between two buffers of scales. A second loop takes what is left: the last whole K block of an
// odd number, and a K block in which the matrix ends. tools/builder/ceilings.json limits the instructions of the first loop.
#pragma once

#include "common/tensor_memory.cuh"
#include "gemm/blackwell/schedule/tiles.cuh"

namespace zoo {

template <class Tile>
struct Mainloop {
    using Format = typename Tile::Format;

    // Columns of tensor memory for the scales of a K block. The MMAs of the K block that last used the columns arrive at `empty`.
    struct ScaleBuffer {
        uint32_t columns, parity;
        Barrier* empty;
    };
    static_assert(Tile::SCALE_BUFFERS == 2 && Tile::MMA_B_SCALE_TILES <= 2);

    BlockRing<Tile> ring = {};
    ScaleBuffer buffers[2];  // of the next K block, and of the K block after that
    int tiles = 0;           // started

    // The first two K blocks overwrite no scales. They wait for parity 1 at barriers that have completed no phase, which returns at once.
    __device__ __forceinline__ explicit Mainloop(Tile& tile) {
        for (int i = 0; i < 2; i++)
            buffers[i] = {uint32_t(Tile::FIRST_SCALE_COLUMN + i * Tile::SCALE_COLUMNS), 1, &tile.empty[Tile::STAGES - 2 + i]};
    }

    // `types` are bits of the instruction descriptor, for tokens and weights; `elements` is K. A tile without K blocks has no sums.
    __device__ __forceinline__ void run(Tile& tile, const TileWork& work, uint32_t types, int elements) {
        if (work.first_block == work.end_block) return;
        const int n = MmaRows<Tile>(work).columns;
        const uint32_t tensor_memory = __shfl_sync(0xFFFFFFFF, tile.tensor_memory, 0);
        Products products{.first_a = operand_descriptor(shared_address(tile.stages[0].mma_a)),
                          .first_scales = scale_descriptor(shared_address(tile.scales[0].mma_a)),
                          .shape = mma_types(types) | instruction_descriptor(Tile::MMA_A_ROWS, n, 0, 0, Format::UE8M0),
                          .tensor_memory = tensor_memory,
                          .sums = tensor_memory + (tiles % 2 ? Tile::SECOND_SUMS : 0),
                          .both_b_scales = n > SCALE_TILE_ROWS};
        wait_for_empty_sums(tile);
        const int left = min(elements, work.elements);
        int block = work.first_block;
#pragma unroll 1
        for (const int last = min(work.end_block, left / Format::K_BLOCK_ELEMENTS) - 1; block < last; block += 2) {
            multiply_block(tile, products, buffers[0], WholeBlock());
            multiply_block(tile, products, buffers[1], WholeBlock());
        }
#pragma unroll 1
        for (; block < work.end_block; block++) {
            multiply_block(tile, products, buffers[0], PartOfBlock{left - block * Format::K_BLOCK_ELEMENTS});
            const ScaleBuffer used = buffers[0];
            buffers[0] = buffers[1];
            buffers[1] = used;
        }
        if (elected()) arrive_in_all_after_multiplications<Tile::CTAS>(&tile.sums_full[tiles % 2]);
        __syncwarp();
        tiles++;
    }

   private:
    struct Products {
        uint64_t first_a, first_scales;  // descriptors of stage 0
        uint32_t shape, tensor_memory, sums;
        bool both_b_scales;  // whether the MMAs read the second scale tile of MMA operand B
        bool add = false;
    };

    // The K steps of a K block. The matrix may end within the last K block.
    struct WholeBlock {
        __device__ __forceinline__ void prepare(Tile&, typename Tile::Stage&) const {}
        __device__ __forceinline__ constexpr bool has(int) const { return true; }
    };
    struct PartOfBlock {
        int elements;
        __device__ __forceinline__ void prepare(Tile& tile, typename Tile::Stage& stage) const {
            if (elements < Format::K_BLOCK_ELEMENTS) tile.prepare_part(stage, elements);
        }
        __device__ __forceinline__ bool has(int step) const { return step * Format::STEP_ELEMENTS < elements; }
    };

    template <class Steps>
    __device__ __forceinline__ void multiply_block(Tile& tile, Products& products, ScaleBuffer& buffer, Steps steps) {
        Barrier* empty = &tile.empty[ring.stage];
        wait_for_published<Tile::CTAS>(&tile.full[ring.stage], ring.parity);
        wait(buffer.empty, buffer.parity);
        fence_after_taking_over();
        steps.prepare(tile, tile.stages[ring.stage]);
        if (elected()) {
            const uint32_t a_scales = products.tensor_memory + buffer.columns, b_scales = a_scales + 4 * Format::SCALE_TILES;
            const uint64_t scales = in_stage<sizeof(typename Tile::ScaleStage)>(products.first_scales, ring.scale_stage());
            copy_scales_of_block(scales, a_scales, b_scales, products.both_b_scales, steps);
            const uint64_t a = in_stage<sizeof(typename Tile::Stage)>(products.first_a, ring.stage),
                           b = bytes_after(a, sizeof(tile.stages[0].mma_a));
#pragma unroll
            for (int step = 0; step < K_STEPS; step++) {
                if (!steps.has(step)) break;
                constexpr int EACH = Format::STEP_SCALES;
                const int scale_tile = step * EACH / SCALE_TILE_COLUMNS, bytes = step * (K_BLOCK_BYTES / K_STEPS);
                multiply<Tile::CTAS, Format::MMA>(products.sums, bytes_after(a, bytes), bytes_after(b, bytes),
                                                  products.shape | scales_at_byte(step * EACH % SCALE_TILE_COLUMNS),
                                                  a_scales + 4 * scale_tile, b_scales + 4 * Tile::MMA_B_SCALE_TILES * scale_tile,
                                                  products.add || step > 0);
            }
            arrive_in_all_after_multiplications<Tile::CTAS>(empty);
        }
        __syncwarp();
        products.add = true;
        buffer.parity = ring.parity;
        buffer.empty = empty;
        ring.advance();
    }

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
    template <class Steps>
    __device__ __forceinline__ static void copy_scales_of_block(uint64_t a, uint32_t a_scales, uint32_t b_scales,
                                                                bool both_b_scales, Steps steps) {
#pragma unroll
        for (int i = 0; i < Format::SCALE_TILES; i++) {
            if (!steps.has(i * SCALE_TILE_COLUMNS / Format::STEP_SCALES)) break;
            copy_scales<Tile::CTAS>(a_scales + 4 * i, bytes_after(a, i * SCALE_TILE_BYTES));
#pragma unroll
            for (int j = 0; j < Tile::MMA_B_SCALE_TILES; j++)
                if (j == 0 || both_b_scales)
                    copy_scales<Tile::CTAS>(b_scales + 4 * (i * Tile::MMA_B_SCALE_TILES + j),
                                            bytes_after(a, (1 + j) * Tile::SCALE_BYTES + i * SCALE_TILE_BYTES));
        }
    }
};

}  // namespace zoo
