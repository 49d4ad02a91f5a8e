// Rows of A through an index. Elements: the copy engine gathers four rows at a time; which ones, one thread reads in shared memory, as
// a copy's coordinates are the same for a whole warp. Scales: no copy engine gathers them in tiles, so A's are plain, and the scales'
// warp reads them ahead, a lane four rows 32 apart, which are a line of 16 bytes of a tile:
//
//     row l         | 0 1 2 3 | 4 5 6 7 | ..            line l of tile 0   | 0 1 2 3 of l | of l + 32 | of l + 64 | of l + 96 |
//     row l + 32    | 0 1 2 3 | 4 5 6 7 | ..     ->     line l of tile 1   | 4 5 6 7 of l | of l + 32 | ..
//     row l + 64    | ..                                ..
#pragma once

#include "common/global_memory.cuh"
#include "gemm/block_scaled/load.cuh"

namespace zoo {

// Which row of A a row of D takes.
struct RowsByIndex {
    const int* index;
    int rows;  // of A

    // For a row of a tile; -1: none of A's.
    __device__ __forceinline__ int of(const ScaledWork& work, int row) const {
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

// Which rows of B a tile's product takes, and how they come: in one box, or, gates and ups in rows of their own, in boxes of 128 that
// are `step` apart.
struct RowsOfOneBox {
    int rows;

    __device__ __forceinline__ int rows_of(int) const { return rows; }
    __device__ __forceinline__ void load(uint8_t* to, const TensorMap& b, int byte, const ScaledWork& work, int,
                                         Barrier* full) const {
        load_box(to, b, byte, work.weight, full);
    }
};
struct RowsOfBoxesApart {
    static constexpr int BOX = 128;
    int step;

    __device__ __forceinline__ int rows_of(int used) const { return (used + BOX - 1) / BOX * BOX; }
    __device__ __forceinline__ void load(uint8_t* to, const TensorMap& b, int byte, const ScaledWork& work, int used,
                                         Barrier* full) const {
#pragma unroll 1
        for (int i = 0; i * BOX < used; i++) load_box(to + i * BOX * LINE_BYTES, b, byte, work.weight + i * step, full);
    }
};

template <class Tile, class Rows = RowsOfOneBox>
struct GatheredElements {
    static constexpr int AT_ONCE = Tile::SWAPPED ? Tile::COLUMN_UNIT / 4 : 8;  // copies whose coordinates are read together
    const TensorMap &a, &b;                                                    // a: rows one by one
    RowsByIndex rows;
    Rows weights;
    int weight_bytes = LINE_BYTES;  // of a line of B, as barriers count them

    __device__ __forceinline__ void prefetch_maps() const {
        prefetch(a);
        prefetch(b);
    }

    // By a whole warp. Rows that are columns of no product are left away; others that are nobody's are zeros.
    __device__ __forceinline__ void load(Tile& tile, Ring<Tile::STAGES>& ring, const ScaledWork& work, int) const {
        const int lane = threadIdx.x % 32, used = Sides<Tile>(work).used, tokens = Tile::SWAPPED ? used : LANES;
        tile.rows[lane] = {rows.of(work, 4 * lane), rows.of(work, 4 * lane + 1), rows.of(work, 4 * lane + 2),
                           rows.of(work, 4 * lane + 3)};
        __syncwarp();
        if (!elected()) return;
#pragma unroll 1
        for (int line = work.first_line; line < work.end_line; line++, ring.advance()) {
            typename Tile::Stage& stage = tile.stages[ring.stage];
            uint8_t *of_tokens = Tile::SWAPPED ? stage.right : stage.left, *of_weights = Tile::SWAPPED ? stage.left : stage.right;
            Barrier* full = &tile.full[ring.stage];
            wait(&tile.empty[ring.stage], ring.parity ^ 1);
            arrive_expecting_bytes(full, tokens * LINE_BYTES + weights.rows_of(used) * weight_bytes);
            weights.load(of_weights, b, line * LINE_BYTES, work, used, full);
#pragma unroll 1
            for (int first = 0; first < tokens; first += 4 * AT_ONCE) {
                int4 of_a[AT_ONCE];
#pragma unroll
                for (int i = 0; i < AT_ONCE; i++) of_a[i] = tile.rows[first / 4 + i];
#pragma unroll
                for (int i = 0; i < AT_ONCE; i++)
                    load_four_rows(of_tokens + (first + 4 * i) * LINE_BYTES, a, line * LINE_BYTES, of_a[i], full);
            }
        }
    }
};

// Plain scales of A's rows, `scales` of each, contiguous.
struct PlainScales {
    const uint8_t* first;
    int64_t stride;
    int scales;
};

template <class Tile>
struct GatheredScales {
    using Kind = typename Tile::Kind;
    static constexpr int BYTES = SCALES_A_TILE_ROW * Kind::SCALE_TILES;  // of a row in a line of K
    static constexpr int LINES = BYTES == 16 ? 2 : 4;                    // of K that are read at once
    static constexpr int ROWS = SCALE_TILE_ROWS / 32, WORDS = LINES * Kind::SCALE_TILES;
    static_assert(WORDS % 4 == 0 && Tile::TOKENS <= SCALE_TILE_ROWS);
    PlainScales a;
    RowsByIndex rows;
    BlockedScales b;

    __device__ __forceinline__ void prefetch_maps() const { prefetch(b.map); }

    // By a whole warp. Scales of the lines that follow are on their way while those before are written.
    __device__ __forceinline__ void load(Tile& tile, Ring<Tile::SCALE_STAGES>& ring, const ScaledWork& work, int) const {
        const uint8_t* from[ROWS];
#pragma unroll
        for (int i = 0; i < ROWS; i++) {
            const int row = rows.of(work, int(threadIdx.x) % 32 + 32 * i);
            from[i] = row < 0 ? nullptr : a.first + row * a.stride;
        }
        const int weight_tiles = Tile::SWAPPED ? 1 : (Sides<Tile>(work).used + SCALE_TILE_ROWS - 1) / SCALE_TILE_ROWS;
        uint32_t now[ROWS][WORDS], next[ROWS][WORDS];
#pragma unroll 1
        for (int first = work.first_line - LINES; first < work.end_line; first += LINES) {
            read(next, from, first + LINES, work.end_line);
#pragma unroll
            for (int i = 0; i < LINES; i++)
                if (first >= work.first_line && first + i < work.end_line) {
                    write_line(tile, ring, now, i, work, first + i, weight_tiles);
                    ring.advance();
                }
#pragma unroll
            for (int i = 0; i < ROWS * WORDS; i++) now[i / WORDS][i % WORDS] = next[i / WORDS][i % WORDS];
        }
    }

   private:
    // Of LINES lines, zeros for what is no scale.
    __device__ __forceinline__ void read(uint32_t (&words)[ROWS][WORDS], const uint8_t* const (&from)[ROWS], int line,
                                         int end_line) const {
        const bool aligned = a.stride % 16 == 0;
#pragma unroll
        for (int i = 0; i < ROWS; i++)
#pragma unroll
            for (int word = 0; word < WORDS; word += 4) {
                const int at = line * BYTES + word * 4;
                uint4 four = {};
                if (from[i] != nullptr && line < end_line)
                    four = aligned && at + 16 <= a.scales ? load_16_bytes(from[i] + at)
                                                          : bytes_one_by_one(from[i] + at, a.scales - at);
                words[i][word] = four.x, words[i][word + 1] = four.y, words[i][word + 2] = four.z, words[i][word + 3] = four.w;
            }
    }

    // 16 of them, or as many as there are.
    __device__ __forceinline__ static uint4 bytes_one_by_one(const uint8_t* from, int there) {
        uint4 four = {};
#pragma unroll 1
        for (int i = min(there, 16) - 1; i >= 0; i--) {
            four.w = __funnelshift_l(four.z, four.w, 8);
            four.z = __funnelshift_l(four.y, four.z, 8);
            four.y = __funnelshift_l(four.x, four.y, 8);
            four.x = four.x << 8 | from[i];
        }
        return four;
    }

    // Line `i` of those that were read, and the weights' scales.
    __device__ __forceinline__ void write_line(Tile& tile, const Ring<Tile::SCALE_STAGES>& ring,
                                               const uint32_t (&words)[ROWS][WORDS], int i, const ScaledWork& work, int line,
                                               int weight_tiles) const {
        using Both = ScalesOfBoth<Tile>;
        typename Tile::ScaleStage& stage = tile.scales[ring.stage];
        uint8_t *of_tokens = Tile::SWAPPED ? stage.right[0] : stage.left,
                *of_weights = Tile::SWAPPED ? stage.left : stage.right[0];
        Barrier* full = &tile.scales_full[ring.stage];
        const bool by_hand = Both::ends_within_step(a.scales, line);
        wait(&tile.scales_empty[ring.stage], ring.parity ^ 1);
#pragma unroll
        for (int j = 0; j < Kind::SCALE_TILES; j++) {
            const int word = i * Kind::SCALE_TILES + j;
            *reinterpret_cast<uint4*>(of_tokens + j * SCALE_TILE_BYTES + threadIdx.x % 32 * 16) = {
                words[0][word], words[1][word], words[2][word], words[3][word]};
        }
        if (by_hand)
#pragma unroll 1
            for (int j = 0; j < weight_tiles; j++)
                Both::write(of_weights + j * Tile::SCALE_LINE_BYTES, b, work.weight_scales + j * b.step, line);
        let_copies_see_shared_memory();
        __syncwarp();
        if (elected()) {
            arrive_expecting_bytes(full, by_hand ? 0 : weight_tiles * Tile::SCALE_LINE_BYTES);
#pragma unroll 1
            for (int j = 0; j < weight_tiles && !by_hand; j++)
                load_box(of_weights + j * Tile::SCALE_LINE_BYTES, b.map, 0,
                         (work.weight_scales + j * b.step) * b.tiles + line * Kind::SCALE_TILES, full);
        }
        __syncwarp();
    }
};

}  // namespace zoo
