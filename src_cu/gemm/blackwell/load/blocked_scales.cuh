// The scale producer of mxfp8, mxfp4 and nvfp4: scale tiles of both operands to shared memory. GEMMs of these formats include it.
#pragma once

#include "common/global_memory.cuh"
#include "gemm/blackwell/schedule/tiles.cuh"

namespace zoo {

// Scales in tiles of 128 rows x 4, as quantisers write them with layout="blocked". The tiles of 128 rows are neighbours in memory.
struct BlockedScales {
    const TensorMap& map;  // 32-bit words: 128 of a scale tile x scale tiles
    const uint8_t* first;
    int scales, tiles;  // of a row, and the scale tiles that hold them; the last tile's rest may be any byte
    int tile_rows;      // rows of scale tiles
    int before = 0;     // scale tiles of other matrices
    int step = 1;       // rows of scale tiles from one that a work needs to the next

    __device__ __forceinline__ const BlockedScales& of(const TileWork&) const { return *this; }
};

// of(work) of a Matrix returns the BlockedScales that the work reads.
template <class Tile, class Matrix = BlockedScales>
struct BlockedScaleLoader {
    using Format = typename Tile::Format;
    Matrix a, b;

    __device__ __forceinline__ void prefetch_maps() const {
        prefetch(a.map);
        prefetch(b.map);
    }

    // A whole warp of each CTA calls this. Both CTAs of a pair need all scales of MMA operand B, so each CTA copies every second tile to both.
    __device__ __forceinline__ void load(Tile& tile, BlockRing<Tile>& ring, const TileWork& work, int rank) const {
        const MmaRows<Tile> rows(work);
        const BlockedScales mma_a = (Tile::SWAPPED ? b : a).of(work), mma_b = (Tile::SWAPPED ? a : b).of(work);
        const int b_tiles = (rows.columns + SCALE_TILE_ROWS - 1) / SCALE_TILE_ROWS;
#pragma unroll 1
        for (int block = work.first_block; block < work.end_block; block++, ring.advance()) {
            typename Tile::ScaleStage& stage = tile.scales[ring.scale_stage()];
            Barrier* full = &tile.full[ring.stage];
            ring.wait_for_empty_scales(tile);
            if (scales_end_within_step(mma_a.scales, block)) {
                write(stage.mma_a, mma_a, rows.a_scales + rank, block);
#pragma unroll 1
                for (int i = 0; i < b_tiles; i++) write(stage.mma_b[i], mma_b, rows.b_scales + i * mma_b.step, block);
                let_copies_see_shared_memory();
                __syncwarp();
                if (elected()) publish_at_first<Tile::CTAS>(full);
            } else if (elected()) {
                arrive_expecting_bytes_at_first<Tile::CTAS>(full, (1 + b_tiles) * Tile::SCALE_BYTES);
                const int first = block * Format::SCALE_TILES;
                load_box_for<Tile::CTAS>(stage.mma_a, mma_a.map, 0, mma_a.before + (rows.a_scales + rank) * mma_a.tiles + first,
                                         full);
#pragma unroll 1
                for (int i = rank; i < b_tiles; i += Tile::CTAS)
                    load_box_for_all<Tile::CTAS>(stage.mma_b[i], mma_b.map, 0,
                                                 mma_b.before + (rows.b_scales + i * mma_b.step) * mma_b.tiles + first, full);
            }
            __syncwarp();
        }
    }

    // Whether the last K step reads padding as scales. Its elements are zero there, but zero times a NaN would be NaN.
    __device__ __forceinline__ static bool scales_end_within_step(int scales, int block) {
        return scales % Format::STEP_SCALES != 0 && scales < (block + 1) * SCALE_TILE_COLUMNS * Format::SCALE_TILES;
    }

    // Writes the scale tiles of a K block by threads, 16 bytes a lane, with zeros for padding.
    __device__ __forceinline__ static void write(uint8_t* target, const BlockedScales& from, int tile_row, int block) {
        const int lane = threadIdx.x % 32;
#pragma unroll 1
        for (int i = 0; i < Format::SCALE_TILES; i++) {
            const int tile = block * Format::SCALE_TILES + i, left = from.scales - tile * SCALE_TILE_COLUMNS;
            uint4 four = {};
            if (left > 0 && tile_row < from.tile_rows)
                four = load_16_bytes(from.first + (from.before + int64_t(tile_row) * from.tiles + tile) * SCALE_TILE_BYTES +
                                     lane * 16);
            const uint32_t kept = left >= SCALE_TILE_COLUMNS ? ~0u : left <= 0 ? 0 : (1u << 8 * left) - 1;
            four = {four.x & kept, four.y & kept, four.z & kept, four.w & kept};
            *reinterpret_cast<uint4*>(target + i * SCALE_TILE_BYTES + lane * 16) = four;
        }
    }
};

}  // namespace zoo
