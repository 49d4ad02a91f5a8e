// The element producer: K blocks of both operands to shared memory, by tensor copies. GEMMs that read A's rows in sequence include it.
#pragma once

#include "gemm/blackwell/schedule/tiles.cuh"

namespace zoo {

// One TMA copy loads `box_rows` rows of MMA operand B. A tile of few tokens copies only the boxes whose columns the MMAs compute, because rows
// outside a matrix take as long to copy as other rows.
template <class Tile>
struct ElementLoader {
    const TensorMap &a, &b;
    int box_rows = Tile::MMA_B_ROWS;
    int weight_row_bytes = K_BLOCK_BYTES;  // as barriers count them

    __device__ __forceinline__ void prefetch_maps() const {
        prefetch(a);
        prefetch(b);
    }

    // A whole warp of each CTA calls this. One thread copies, and calls halfway(). Each CTA of a pair copies half of MMA operand B's rows in use.
    __device__ __forceinline__ void load(Tile& tile, Ring<Tile::STAGES>& ring, const TileWork& work, int rank,
                                         auto halfway) const {
        if (!elected()) return;
        const MmaRows<Tile> rows(work);
        const TensorMap &mma_a = Tile::SWAPPED ? b : a, &mma_b = Tile::SWAPPED ? a : b;
        const int boxes = Tile::SWAPPED ? (rows.columns + box_rows - 1) / box_rows : 1;
        const int first = rows.b + rank * (rows.columns / Tile::CTAS);
        const int tokens = Tile::SWAPPED ? boxes * box_rows : LANES, weights = Tile::SWAPPED ? LANES : boxes * box_rows;
#pragma unroll 1
        for (int block = work.first_block; block < work.end_block; block++, ring.advance()) {
            if (block == (work.first_block + work.end_block) / 2) halfway();
            typename Tile::Stage& stage = tile.stages[ring.stage];
            Barrier* full = &tile.full[ring.stage];
            const int byte = work.first_byte + block * K_BLOCK_BYTES;
            wait(&tile.empty[ring.stage], ring.parity ^ 1);
            if (rank == 0) arrive_expecting_bytes(full, Tile::CTAS * (tokens * K_BLOCK_BYTES + weights * weight_row_bytes));
            load_box_for<Tile::CTAS>(stage.mma_a, mma_a, byte, rows.a + rank * LANES, full);
#pragma unroll 1
            for (int i = 0; i < boxes; i++)
                load_box_for<Tile::CTAS>(stage.mma_b + i * box_rows * K_BLOCK_BYTES, mma_b, byte, first + i * box_rows, full);
        }
    }
};

}  // namespace zoo
