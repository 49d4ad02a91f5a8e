// The scale producer of m_grouped_gather in mxfp8, mxfp4 and nvfp4. gather.cu and gather_epilogues.cu include it.
//
// No copy engine gathers scale tiles, so A's scales are plain, and the producer warp makes tiles of them. A lane reads four rows that are
// 32 apart, which are 16 neighbouring bytes of a scale tile:
//
//     row l         | 0 1 2 3 | 4 5 6 7 | ..            bytes 16 l.. of tile 0   | 0 1 2 3 of l | of l + 32 | of l + 64 | of l + 96 |
//     row l + 32    | 0 1 2 3 | 4 5 6 7 | ..     ->     bytes 16 l.. of tile 1   | 4 5 6 7 of l | of l + 32 | ..
//     row l + 64    | ..                                ..
#pragma once

#include "gemm/blackwell/load/blocked_scales.cuh"
#include "gemm/blackwell/load/gathered_elements.cuh"

namespace zoo {

// A row's scales are contiguous.
struct PlainScales {
    const uint8_t* first;
    int64_t stride;
    int scales;  // of a row
};

template <class Tile>
struct GatheredScaleLoader {
    using Format = typename Tile::Format;
    static constexpr int BYTES = SCALE_TILE_COLUMNS * Format::SCALE_TILES;  // of a row's K block
    static constexpr int BLOCKS = BYTES == 16 ? 2 : 4;                      // K blocks that are read together
    static constexpr int ROWS = SCALE_TILE_ROWS / 32, WORDS = BLOCKS * Format::SCALE_TILES;
    static_assert(WORDS % 4 == 0 && Tile::TOKENS <= SCALE_TILE_ROWS);
    PlainScales a;
    RowIndex index;
    BlockedScales b;

    __device__ __forceinline__ void prefetch_maps() const { prefetch(b.map); }

    // A whole warp calls this. Loads of the next scales are in flight while the current scales are written.
    __device__ __forceinline__ void load(Tile& tile, BlockRing<Tile>& ring, const TileWork& work, int) const {
        const uint8_t* from[ROWS];
#pragma unroll
        for (int i = 0; i < ROWS; i++) {
            const int row = index.of(work, int(threadIdx.x) % 32 + 32 * i);
            from[i] = row < 0 ? nullptr : a.first + row * a.stride;
        }
        const int weight_tiles = Tile::SWAPPED ? 1 : (MmaRows<Tile>(work).columns + SCALE_TILE_ROWS - 1) / SCALE_TILE_ROWS;
        uint32_t now[ROWS][WORDS], next[ROWS][WORDS];
#pragma unroll 1
        for (int first = work.first_block - BLOCKS; first < work.end_block; first += BLOCKS) {
            read(next, from, first + BLOCKS, work.end_block);
#pragma unroll
            for (int i = 0; i < BLOCKS; i++)
                if (first >= work.first_block && first + i < work.end_block) {
                    write_block(tile, ring, now, i, work, first + i, weight_tiles);
                    ring.advance();
                }
#pragma unroll
            for (int i = 0; i < ROWS * WORDS; i++) now[i / WORDS][i % WORDS] = next[i / WORDS][i % WORDS];
        }
    }

   private:
    // Reads the scales of BLOCKS K blocks from `block` on, and zeros after the last scale.
    __device__ __forceinline__ void read(uint32_t (&words)[ROWS][WORDS], const uint8_t* const (&from)[ROWS], int block,
                                         int end_block) const {
        const bool aligned = a.stride % 16 == 0;
#pragma unroll
        for (int i = 0; i < ROWS; i++)
#pragma unroll
            for (int word = 0; word < WORDS; word += 4) {
                const int at = block * BYTES + word * 4;
                uint4 four = {};
                if (from[i] != nullptr && block < end_block)
                    four = aligned && at + 16 <= a.scales ? load_16_bytes(from[i] + at)
                                                          : load_few_bytes(from[i] + at, a.scales - at);
                words[i][word] = four.x, words[i][word + 1] = four.y, words[i][word + 2] = four.z, words[i][word + 3] = four.w;
            }
    }

    // At most 16 bytes, one by one.
    __device__ __forceinline__ static uint4 load_few_bytes(const uint8_t* from, int count) {
        uint4 four = {};
#pragma unroll 1
        for (int i = min(count, 16) - 1; i >= 0; i--) {
            four.w = __funnelshift_l(four.z, four.w, 8);
            four.z = __funnelshift_l(four.y, four.z, 8);
            four.y = __funnelshift_l(four.x, four.y, 8);
            four.x = four.x << 8 | from[i];
        }
        return four;
    }

    // Writes A's scales of K block i of `words`, and copies or writes B's.
    __device__ __forceinline__ void write_block(Tile& tile, const BlockRing<Tile>& ring, const uint32_t (&words)[ROWS][WORDS],
                                                int i, const TileWork& work, int block, int weight_tiles) const {
        using Blocked = BlockedScaleLoader<Tile>;
        typename Tile::ScaleStage& stage = tile.scales[ring.scale_stage()];
        uint8_t *token_scales = Tile::SWAPPED ? stage.mma_b[0] : stage.mma_a,
                *weight_scales = Tile::SWAPPED ? stage.mma_a : stage.mma_b[0];
        Barrier* full = &tile.full[ring.stage];
        const bool by_threads = Blocked::scales_end_within_step(a.scales, block);
        ring.wait_for_empty_scales(tile);
#pragma unroll
        for (int j = 0; j < Format::SCALE_TILES; j++) {
            const int word = i * Format::SCALE_TILES + j;
            *reinterpret_cast<uint4*>(token_scales + j * SCALE_TILE_BYTES + threadIdx.x % 32 * 16) = {
                words[0][word], words[1][word], words[2][word], words[3][word]};
        }
        if (by_threads)
#pragma unroll 1
            for (int j = 0; j < weight_tiles; j++)
                Blocked::write(weight_scales + j * Tile::SCALE_BYTES, b, work.weight_scales + j * b.step, block);
        let_copies_see_shared_memory();
        __syncwarp();
        if (elected()) {
            arrive_expecting_bytes(full, by_threads ? 0 : weight_tiles * Tile::SCALE_BYTES);
#pragma unroll 1
            for (int j = 0; j < weight_tiles && !by_threads; j++)
                load_box(weight_scales + j * Tile::SCALE_BYTES, b.map, 0,
                         (work.weight_scales + j * b.step) * b.tiles + block * Format::SCALE_TILES, full);
        }
        __syncwarp();
    }
};

}  // namespace zoo
