// A tile of D and what a CTA holds of it. The operand whose rows are the sums' lanes is called left, the one whose rows are their
// columns right: tokens and weights, or weights and tokens where tokens are few.
//
//     shared memory   STAGES x (left 128 lines, right COLUMNS / CTAS lines) | SCALE_STAGES x (scales of left, of right)
//     tensor memory   | sums of one tile                     |           scales |
//                     |            sums of the next tile at SECOND  |    scales |    512 columns
//
// With 256 columns two sums do not fit beside the scales: they overlap, and what they share is read first.
//
//     barrier          arrivals                                       waits
//     full             1, and the bytes of all CTAs                   multiplier
//     empty            1, when products have read                     loader of each CTA
//     scales_full      CTAS, and their bytes                          multiplier
//     scales_empty     1, when products have read                     loader of scales of each CTA
//     columns_empty    1, when products have read                     multiplier, before it copies scales to the columns again
//     ready            1, when the sums are complete                  those who store, of each CTA
//     drained          4 warps of each CTA                            multiplier, before it overwrites sums
//
// Of a pair of CTAs each holds its 128 lanes of left and half of right; the first multiplies for both.
#pragma once

#include "common/cluster_launch.cuh"
#include "common/pair_copy.cuh"
#include "gemm/block_scaled/kind.cuh"

namespace zoo {

constexpr int LANES = 128, STORING_WARPS = 4, TENSOR_COLUMNS = 512, ANSWERS = 3, THREADS_OF_ROLES = 256;

template <class Kind_, int CTAS_, int COLUMNS_, bool SWAPPED_, int STAGES_, int SCALE_STAGES_>
struct ScaledTile {
    using Kind = Kind_;
    static constexpr int CTAS = CTAS_, COLUMNS = COLUMNS_, STAGES = STAGES_, SCALE_STAGES = SCALE_STAGES_;
    static constexpr bool SWAPPED = SWAPPED_;
    static constexpr int LEFT_ROWS = LANES * CTAS, RIGHT_ROWS = COLUMNS / CTAS;  // of the pair, of a CTA
    static constexpr int TOKENS = SWAPPED ? COLUMNS : LEFT_ROWS, WEIGHTS = SWAPPED ? LEFT_ROWS : COLUMNS;
    static constexpr int RIGHT_TILES = (COLUMNS + SCALE_TILE_ROWS - 1) / SCALE_TILE_ROWS;  // of scales, below each other
    static constexpr int SCALE_BUFFERS = 2, SCALE_COLUMNS = 4 * Kind::SCALE_TILES * (1 + RIGHT_TILES);
    static constexpr int FIRST_SCALE_COLUMN = TENSOR_COLUMNS - SCALE_BUFFERS * SCALE_COLUMNS;
    static constexpr int SECOND = (FIRST_SCALE_COLUMN / 2 >= COLUMNS ? COLUMNS : FIRST_SCALE_COLUMN - COLUMNS) / 32 * 32;
    static constexpr bool OVERLAPPED = SECOND < COLUMNS;
    static constexpr int CHUNK = SWAPPED ? 16 : 32;  // columns of sums that a thread takes from tensor memory at a time
    static constexpr int COLUMN_UNIT =
        CHUNK;  // what the columns of a product are a multiple of: whoever takes a chunk finds sums
    static_assert(COLUMN_UNIT % (16 * CTAS) == 0);
    static constexpr int SCALE_LINE_BYTES = Kind::SCALE_TILES * SCALE_TILE_BYTES;

    struct alignas(1024) Stage {
        uint8_t left[LANES * LINE_BYTES], right[RIGHT_ROWS * LINE_BYTES];
    };
    struct alignas(128) ScaleStage {
        uint8_t left[SCALE_LINE_BYTES], right[RIGHT_TILES][SCALE_LINE_BYTES];
    };

    Stage stages[STAGES];
    ScaleStage scales[SCALE_STAGES];
    LaunchAnswer answers[ANSWERS];
    Barrier full[STAGES], empty[STAGES], scales_full[SCALE_STAGES], scales_empty[SCALE_STAGES], columns_empty[SCALE_BUFFERS];
    Barrier ready[2], drained[2], answered[ANSWERS], read[ANSWERS];
    uint32_t tensor_memory;

    static_assert(sizeof(Stage) == (LANES + RIGHT_ROWS) * LINE_BYTES && SECOND > 0);

    // By a whole warp, a lane for each stage.
    __device__ __forceinline__ void initialise_barriers(int readers) {
        initialise_each(full, 1);
        initialise_each(empty, 1);
        initialise_each(scales_full, CTAS);
        initialise_each(scales_empty, 1);
        initialise_each(columns_empty, 1);
        initialise_each(ready, 1);
        initialise_each(drained, STORING_WARPS * CTAS);
        initialise_each(answered, 1);
        initialise_each(read, readers);
    }

   private:
    template <int COUNT>
    __device__ __forceinline__ static void initialise_each(Barrier (&barriers)[COUNT], int arrivals) {
        static_assert(COUNT <= 32);
        const int lane = threadIdx.x % 32;
        if (lane < COUNT) initialise(&barriers[lane], arrivals);
    }
};

// One tile of D, or a share of K of it. Of the operands, rows as the tensor maps count them.
struct ScaledWork {
    int token, weight;                // first rows of A and of B
    int token_scales, weight_scales;  // first tiles of 128 rows of their scales
    int row, column;                  // of D
    int rows, columns;                // of D that are the tile's
    int group;
    int first_line, end_line;  // of K
    // Of groups along K: where in the operands' rows line 0 begins, and how many elements of K there are.
    int first_byte = 0, elements = 0x7FFFFFFF;
};

// The operands' side of a tile.
template <class Tile>
struct Sides {
    int left, right, left_scales, right_scales, used;  // columns of the product

    __device__ __forceinline__ explicit Sides(const ScaledWork& work)
        : left(Tile::SWAPPED ? work.weight : work.token), right(Tile::SWAPPED ? work.token : work.weight),
          left_scales(Tile::SWAPPED ? work.weight_scales : work.token_scales),
          right_scales(Tile::SWAPPED ? work.token_scales : work.weight_scales),
          used((min(Tile::SWAPPED ? work.rows : work.columns, Tile::COLUMNS) + Tile::COLUMN_UNIT - 1) / Tile::COLUMN_UNIT *
               Tile::COLUMN_UNIT) {}
};

}  // namespace zoo
