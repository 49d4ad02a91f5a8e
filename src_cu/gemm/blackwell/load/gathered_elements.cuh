// The element producer of m_grouped_gather: row i of D reads row index[i] of A. Its kernels include it.
//
// The copy engine gathers four rows of A at a time. A copy's coordinates are uniform in a warp, so one thread reads the rows' indices, which
// all lanes have written to shared memory.
#pragma once

#include "common/global_memory.cuh"
#include "gemm/blackwell/schedule/tiles.cuh"

namespace zoo {

struct RowIndex {
    const int* index;
    int rows;  // of A

    // The row of A that a row of the tile reads, or -1: zeros.
    __device__ __forceinline__ int of(const TileWork& work, int row) const {
        if (row >= work.rows) return -1;
        const int found = load_int(index + work.row + row);
        return uint32_t(found) < uint32_t(rows) ? found : -1;
    }
};

template <class Tile>
struct GatheringTile : Tile {
    static_assert(Tile::CTAS == 1 && Tile::TOKENS == LANES, "a lane looks up four rows");
    int4 rows[LANES / 4];  // of A, of the tile that is loaded
};

// How a tile's weight rows are copied: in one box, or in boxes of 128 rows that are `step` rows apart (gates and ups).
struct OneWeightBox {
    int rows;

    __device__ __forceinline__ int rows_of(int) const { return rows; }
    __device__ __forceinline__ void load(uint8_t* to, const TensorMap& b, int byte, const TileWork& work, int,
                                         Barrier* full) const {
        load_box(to, b, byte, work.weight, full);
    }
};
struct SeparateWeightBoxes {
    static constexpr int BOX = 128;
    int step;

    __device__ __forceinline__ int rows_of(int used) const { return (used + BOX - 1) / BOX * BOX; }
    __device__ __forceinline__ void load(uint8_t* to, const TensorMap& b, int byte, const TileWork& work, int used,
                                         Barrier* full) const {
#pragma unroll 1
        for (int i = 0; i * BOX < used; i++) load_box(to + i * BOX * K_BLOCK_BYTES, b, byte, work.weight + i * step, full);
    }
};

template <class Tile, class Weights = OneWeightBox>
struct GatheredElementLoader {
    static constexpr int FOUR_ROWS_BYTES = 4 * K_BLOCK_BYTES;
    static constexpr int AT_ONCE = Tile::SWAPPED ? Tile::CHUNK / 4 : 8;  // copies whose row indices are read together
    const TensorMap &a, &b;                                              // a box of a is one row
    RowIndex index;
    Weights weights;
    int weight_row_bytes = K_BLOCK_BYTES;  // as barriers count them

    __device__ __forceinline__ void prefetch_maps() const {
        prefetch(a);
        prefetch(b);
    }

    // A whole warp calls this. One thread copies, and calls halfway(). Rows that the tile does not have are not copied: the MMAs multiply what
    // shared memory holds there, and the epilogue does not use those sums.
    __device__ __forceinline__ void load(Tile& tile, Ring<Tile::STAGES>& ring, const TileWork& work, int, auto halfway) const {
        const int lane = threadIdx.x % 32, used = MmaRows<Tile>(work).columns, copies = ceil_div(work.rows, 4);
        tile.rows[lane] = {index.of(work, 4 * lane), index.of(work, 4 * lane + 1), index.of(work, 4 * lane + 2),
                           index.of(work, 4 * lane + 3)};
        __syncwarp();
        if (!elected()) return;
#pragma unroll 1
        for (int block = work.first_block; block < work.end_block; block++, ring.advance()) {
            if (block == (work.first_block + work.end_block) / 2) halfway();
            typename Tile::Stage& stage = tile.stages[ring.stage];
            uint8_t *token_rows = Tile::SWAPPED ? stage.mma_b : stage.mma_a,
                    *weight_rows = Tile::SWAPPED ? stage.mma_a : stage.mma_b;
            Barrier* full = &tile.full[ring.stage];
            wait(&tile.empty[ring.stage], ring.parity ^ 1);
            arrive_expecting_bytes(full, copies * FOUR_ROWS_BYTES + weights.rows_of(used) * weight_row_bytes);
            weights.load(weight_rows, b, block * K_BLOCK_BYTES, work, used, full);
#pragma unroll 1
            for (int first = 0; first < copies; first += AT_ONCE) {
                int4 four_rows[AT_ONCE];
#pragma unroll
                for (int i = 0; i < AT_ONCE; i++) four_rows[i] = tile.rows[first + i];
#pragma unroll
                for (int i = 0; i < AT_ONCE; i++)
                    if (first + i < copies)
                        load_four_rows(token_rows + (first + i) * FOUR_ROWS_BYTES, a, block * K_BLOCK_BYTES, four_rows[i], full);
            }
        }
    }
};

}  // namespace zoo
