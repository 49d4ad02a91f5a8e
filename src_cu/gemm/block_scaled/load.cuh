// Elements and scales on their way to shared memory, a line of K at a time, each by a warp of its own with a ring of its own.
#pragma once

#include "common/global_memory.cuh"
#include "gemm/block_scaled/tile.cuh"

namespace zoo {

// Both operands' elements by tensor copies. `right_box`: rows of right that one copy brings. Where tokens are few, only as many copies are
// made as there are columns in use, since rows outside a matrix take as long as others.
template <class Tile>
struct Elements {
    const TensorMap &a, &b;
    int right_box = Tile::RIGHT_ROWS;
    int weight_bytes = LINE_BYTES;  // of a line of B, as barriers count them

    __device__ __forceinline__ void prefetch_maps() const {
        prefetch(a);
        prefetch(b);
    }

    // By a whole warp of each CTA, of which one thread does it. Of right, each CTA of a pair takes its half of the columns that are used.
    __device__ __forceinline__ void load(Tile& tile, Ring<Tile::STAGES>& ring, const ScaledWork& work, int rank) const {
        if (!elected()) return;
        const Sides<Tile> sides(work);
        const TensorMap &left = Tile::SWAPPED ? b : a, &right = Tile::SWAPPED ? a : b;
        const int boxes = Tile::SWAPPED ? (sides.used + right_box - 1) / right_box : 1;
        const int first = sides.right + rank * (sides.used / Tile::CTAS);
        const int tokens = Tile::SWAPPED ? boxes * right_box : LANES, weights = Tile::SWAPPED ? LANES : boxes * right_box;
#pragma unroll 1
        for (int line = work.first_line; line < work.end_line; line++, ring.advance()) {
            typename Tile::Stage& stage = tile.stages[ring.stage];
            Barrier* full = &tile.full[ring.stage];
            const int byte = work.first_byte + line * LINE_BYTES;
            wait(&tile.empty[ring.stage], ring.parity ^ 1);
            if (rank == 0) arrive_expecting_bytes(full, Tile::CTAS * (tokens * LINE_BYTES + weights * weight_bytes));
            load_box_for<Tile::CTAS>(stage.left, left, byte, sides.left + rank * LANES, full);
#pragma unroll 1
            for (int i = 0; i < boxes; i++)
                load_box_for<Tile::CTAS>(stage.right + i * right_box * LINE_BYTES, right, byte, first + i * right_box, full);
        }
    }
};

// Scales in tiles of 128 rows x 4, as quantisers write them with layout="blocked": tiles of a row of tiles one after the other. `tiles`
// of them hold the scales of a row, `scales` in all; what the last one has beyond may be any byte.
struct BlockedScales {
    const TensorMap& map;  // of 32-bit words: 128 of a tile x tiles
    const uint8_t* first;
    int scales, tiles, rows_of_tiles;
    int before = 0;  // tiles of other matrices of scales
    int step = 1;    // from the first row of tiles that a product needs to the next

    __device__ __forceinline__ const BlockedScales& of(const ScaledWork&) const { return *this; }
};

// Of both operands, by a whole warp of each CTA. of(work): the matrix of scales that a tile of D takes them from.
template <class Tile, class Blocked = BlockedScales>
struct ScalesOfBoth {
    using Kind = typename Tile::Kind;
    Blocked a, b;

    __device__ __forceinline__ void prefetch_maps() const {
        prefetch(a.map);
        prefetch(b.map);
    }

    __device__ __forceinline__ void load(Tile& tile, Ring<Tile::SCALE_STAGES>& ring, const ScaledWork& work, int rank) const {
        const Sides<Tile> sides(work);
        const BlockedScales left = (Tile::SWAPPED ? b : a).of(work), right = (Tile::SWAPPED ? a : b).of(work);
        const int right_tiles = (sides.used + SCALE_TILE_ROWS - 1) / SCALE_TILE_ROWS;
#pragma unroll 1
        for (int line = work.first_line; line < work.end_line; line++, ring.advance()) {
            typename Tile::ScaleStage& stage = tile.scales[ring.stage];
            Barrier* full = &tile.scales_full[ring.stage];
            wait(&tile.scales_empty[ring.stage], ring.parity ^ 1);
            if (ends_within_step(left.scales, line)) {
                write(stage.left, left, sides.left_scales + rank, line);
#pragma unroll 1
                for (int i = 0; i < right_tiles; i++) write(stage.right[i], right, sides.right_scales + i * right.step, line);
                let_copies_see_shared_memory();
                __syncwarp();
                if (elected()) publish_at_first<Tile::CTAS>(full);
            } else if (elected()) {
                arrive_expecting_bytes_at_first<Tile::CTAS>(full, (1 + right_tiles) * Tile::SCALE_LINE_BYTES);
                const int at = line * Kind::SCALE_TILES;
                load_box_for<Tile::CTAS>(stage.left, left.map, 0, left.before + (sides.left_scales + rank) * left.tiles + at,
                                         full);
#pragma unroll 1
                for (int i = 0; i < right_tiles; i++)
                    load_box_for<Tile::CTAS>(stage.right[i], right.map, 0,
                                             right.before + (sides.right_scales + i * right.step) * right.tiles + at, full);
            }
            __syncwarp();
        }
    }

    // A step of K reads scales that are nobody's: of elements that are zero, but a NaN would make their product NaN.
    __device__ __forceinline__ static bool ends_within_step(int scales, int line) {
        return scales % Kind::SCALES_A_STEP != 0 && scales < (line + 1) * SCALES_A_TILE_ROW * Kind::SCALE_TILES;
    }

    // A line's tiles by hand, 16 bytes a lane, and zeros for what is no scale.
    __device__ __forceinline__ static void write(uint8_t* target, const BlockedScales& from, int row_of_tiles, int line) {
        const int lane = threadIdx.x % 32;
#pragma unroll 1
        for (int i = 0; i < Kind::SCALE_TILES; i++) {
            const int tile = line * Kind::SCALE_TILES + i, there = from.scales - tile * SCALES_A_TILE_ROW;
            uint4 four = {};
            if (there > 0 && row_of_tiles < from.rows_of_tiles)
                four = load_16_bytes(from.first + (from.before + int64_t(row_of_tiles) * from.tiles + tile) * SCALE_TILE_BYTES +
                                     lane * 16);
            const uint32_t kept = there >= SCALES_A_TILE_ROW ? ~0u : there <= 0 ? 0 : (1u << 8 * there) - 1;
            four = {four.x & kept, four.y & kept, four.z & kept, four.w & kept};
            *reinterpret_cast<uint4*>(target + i * SCALE_TILE_BYTES + lane * 16) = four;
        }
    }
};

}  // namespace zoo
