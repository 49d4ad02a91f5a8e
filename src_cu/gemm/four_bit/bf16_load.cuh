// Where the operands of a product of bf16 and 4-bit weights come from: packed weights by plain bulk copies, tokens by threads, which lay
// them down in the order of K that the packed weights have.
//
// Of the 32 words, two columns each, that 64 columns of a token are, word 8 q + m goes to place 4 m + q: one warp copies them at once,
// reading 128 bytes that follow each other and writing 128 bytes. A copy engine moves nothing smaller than 16 bytes.
#pragma once

#include <cstdint>

#include "common/async_copy.cuh"
#include "gemm/four_bit/bf16_tile.cuh"
#include "gemm/four_bit/load.cuh"
#include "gemm/tile_order.cuh"

namespace zoo {

// By one thread, or by its warp where the order takes one.
template <class Tile, class Order>
__device__ __forceinline__ void load_weights(Tile& tile, Order order, const PackedMatrices& b, int lane) {
    Ring<Tile::STAGES> ring;
    for (Work work; order.next(work);) {
        if (OfWarps<Order> && lane > 0) continue;
        const int first = work.weight / CHUNK_ROWS, heights = min(b.tiles - first, Tile::HEIGHTS);
        for (int block = work.first_block; block < work.end_block; block++, ring.advance()) {
            const int chunk = block * Tile::CHUNKS;
            const uint32_t bytes = min(b.chunks - chunk, Tile::CHUNKS) * Tile::CHUNK_BYTES;
            const uint8_t* from = b.first + ((int64_t(work.group) * b.tiles + first) * b.chunks + chunk) * Tile::CHUNK_BYTES;
            tile.wait_until_empty(ring);
            arrive_expecting_bytes(&tile.full[ring.stage], heights * bytes);
            for (int i = 0; i < heights; i++)
                load_bytes(tile.weights[ring.stage][i], from + int64_t(i) * b.chunks * Tile::CHUNK_BYTES, bytes,
                           &tile.full[ring.stage]);
        }
    }
}

// Rows as they come, or through an index; rows and columns that do not exist are zeros.
template <class Tile, class Order>
__device__ __forceinline__ void copy_tokens(Tile& tile, Order order, const IndexedRows& a, int warp, int lane) {
    constexpr int STEP = Tile::COPYING_WARPS;
    const int piece = lane % 8, word = lane / 8;
    Ring<Tile::STAGES> ring;
    for (Work work; order.next(work);) {
        for (int r = warp + lane * STEP; r < Tile::TOKENS; r += 32 * STEP) {
            const int token = work.token + r;
            int row = token < work.end_token ? token : -1;
            if (a.index != nullptr && row >= 0) row = a.index[row];
            tile.rows[r] = uint32_t(row) < uint32_t(a.rows) ? row : -1;
        }
        __syncwarp();
        for (int block = work.first_block; block < work.end_block; block++, ring.advance()) {
            tile.wait_until_empty(ring);
            const int lines = min(tiles_of(a.K, CHUNK) - block * Tile::CHUNKS, Tile::CHUNKS);
            for (int line = 0; line < lines; line++) {
                const int column = (block * Tile::CHUNKS + line) * CHUNK + lane * 2;
                const uint8_t* from = a.first + int64_t(column) * 2;
                const uint32_t to = shared_address(tile.tokens[ring.stage][line]) + word * 4;
#pragma unroll 4
                for (int r = warp; r < Tile::TOKENS; r += STEP) {
                    const int row = tile.rows[r];
                    const bool exists = row >= 0 && column < a.K;
                    copy_4_bytes(to + r * Tile::LINE + (piece ^ r % 8) * 16, exists ? from + row * a.stride : a.first, exists);
                }
            }
            arrive_after_copies(&tile.full[ring.stage]);
        }
        __syncwarp();
    }
}

}  // namespace zoo
