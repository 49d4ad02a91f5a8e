// The element producer: K blocks of both operands to shared memory, by tensor copies. GEMMs that read A's rows in sequence include it.
#pragma once

#include "gemm/blackwell/schedule/tiles.cuh"

namespace zoo {

// One TMA copy loads `box_rows` rows of MMA operand B. A tile of few tokens copies only the boxes whose columns the MMAs compute, because rows
// outside a matrix take as long to copy as other rows.
template <class Tile, bool LOADS_AHEAD_ = false>
struct ElementLoader {
    static constexpr bool LOADS_AHEAD = LOADS_AHEAD_;  // whether weights may be copied before the previous kernel has ended
    const TensorMap &a, &b;
    int box_rows = Tile::MMA_B_ROWS;
    int weight_row_bytes = K_BLOCK_BYTES;  // as barriers count them
    int weights_ahead = 0;                 // K blocks of the first tile whose weights load_weights_ahead() copies

    __device__ __forceinline__ void prefetch_maps() const {
        prefetch(a);
        prefetch(b);
    }

    // One thread of each CTA calls this before the previous kernel has ended, if weights are constants.
    __device__ __forceinline__ void load_weights_ahead(Tile& tile, const TileWork& work, int rank) const {
        const Copies copies(*this, work, rank);
#pragma unroll 1
        for (int i = 0; i < min(weights_ahead, work.end_block - work.first_block); i++) {
            copies.expect_bytes(&tile.full[i]);
            copies.template load<Tile::SWAPPED>(tile, i, copies.byte_of(work.first_block + i));
        }
    }

    // A whole warp of each CTA calls this. One thread copies, and calls halfway(). Each CTA of a pair copies whole boxes
    // from where its half of MMA operand B's rows in use begins.
    __device__ __forceinline__ void load(Tile& tile, Ring<Tile::STAGES>& ring, const TileWork& work, int rank, auto halfway) {
        if (!elected()) return;
        const Copies copies(*this, work, rank);
#pragma unroll 1
        for (int block = work.first_block; block < work.end_block; block++, ring.advance()) {
            if (block == (work.first_block + work.end_block) / 2) halfway();
            const bool has_weights = block - work.first_block < weights_ahead;
            const int byte = copies.byte_of(block);
            wait(&tile.empty[ring.stage], ring.parity ^ 1);
            if (!has_weights) copies.expect_bytes(&tile.full[ring.stage]);
            if (!Tile::SWAPPED || !has_weights) copies.template load<true>(tile, ring.stage, byte);
            if (Tile::SWAPPED || !has_weights) copies.template load<false>(tile, ring.stage, byte);
        }
        weights_ahead = 0;
    }

   private:
    // What a CTA copies of each K block of a tile.
    struct Copies {
        const TensorMap &mma_a, &mma_b;
        const MmaRows<Tile> rows;
        int rank, box_rows, first_byte, weight_row_bytes;
        int boxes = Tile::SWAPPED ? (rows.columns + box_rows - 1) / box_rows : 1;  // of MMA operand B
        int first = rows.b + rank * (rows.columns / Tile::CTAS);
        int tokens = Tile::SWAPPED ? boxes * box_rows : LANES, weights = Tile::SWAPPED ? LANES : boxes * box_rows;

        __device__ __forceinline__ Copies(const ElementLoader& loader, const TileWork& work, int rank)
            : mma_a(Tile::SWAPPED ? loader.b : loader.a), mma_b(Tile::SWAPPED ? loader.a : loader.b), rows(work), rank(rank),
              box_rows(loader.box_rows), first_byte(work.first_byte), weight_row_bytes(loader.weight_row_bytes) {}

        __device__ __forceinline__ int byte_of(int block) const { return first_byte + block * K_BLOCK_BYTES; }

        __device__ __forceinline__ void expect_bytes(Barrier* full) const {
            if (rank == 0) arrive_expecting_bytes(full, Tile::CTAS * (tokens * K_BLOCK_BYTES + weights * weight_row_bytes));
        }

        template <bool MMA_A>
        __device__ __forceinline__ void load(Tile& tile, int index, int byte) const {
            typename Tile::Stage& stage = tile.stages[index];
            Barrier* full = &tile.full[index];
            if constexpr (MMA_A) load_box_for<Tile::CTAS>(stage.mma_a, mma_a, byte, rows.a + rank * LANES, full);
            if constexpr (!MMA_A)
#pragma unroll 1
                for (int i = 0; i < boxes; i++)
                    load_box_for<Tile::CTAS>(stage.mma_b + i * box_rows * K_BLOCK_BYTES, mma_b, byte, first + i * box_rows, full);
        }
    };
};

}  // namespace zoo
