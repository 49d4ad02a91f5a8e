// Scales for 1 x 128 of A and 128 x 128 of B, f32 powers of two or ue8m0, in any order in memory: no copy engine makes the tiles of them
// that tensor memory takes, so a warp does. All steps of a line of K have the same scale.
//
//     lane l      tokens l, l + 32, l + 64, l + 96: a word each of four equal bytes, 16 bytes of the 512 of a tile
//                 weights: a scale for all 128 rows, 16 equal bytes; or one for each 64, twice 8 equal bytes
//
// or, where weights have a scale a row, as tokens. Rows says which row of the scales each row of a tile has, and where K begins.
//
// A line of the products takes 256 to 512 cycles and memory about 800, so scales of the next AHEAD lines are on their way
// while those of AHEAD lines are written.
#pragma once

#include "gemm/block_scaled/tile.cuh"
#include "scales/power_of_two.cuh"

namespace zoo {

// A scale for a row, or for 128 of them, and 128 of K. Strides in elements.
struct ScaleMatrix {
    const uint8_t* first;
    int is_ue8m0;
    int64_t group, row, block;

    __device__ __forceinline__ int64_t bytes(int64_t scales) const { return is_ue8m0 ? scales : 4 * scales; }
    __device__ __forceinline__ uint32_t at(const uint8_t* place) const {
        return is_ue8m0 ? *place : *reinterpret_cast<const uint32_t*>(place);
    }
    // Four equal bytes.
    __device__ __forceinline__ uint32_t word(uint32_t scale) const {
        return (is_ue8m0 ? scale : e8m0_of_power_of_two(scale)) * 0x01010101;
    }
};

// Of weights a scale for 128 rows; K begins at the first scale.
struct WeightsInSquares {
    static constexpr int SCALES_OF_WEIGHTS = 1;
    static constexpr bool ENDS_WITHIN_STEPS = false;
    __device__ __forceinline__ int64_t place_of_weight(const ScaleMatrix& scales, const ScaledWork& work, int row) const {
        return work.group * scales.group + int64_t((work.column + row) / SCALE_TILE_ROWS) * scales.row;
    }
    __device__ __forceinline__ int first_block(const ScaledWork&) const { return 0; }
};

// Row `token` of a tile, of the rows that have scales; places of `rows` each, where groups have places.
struct RowsAsTheyLie : WeightsInSquares {
    int rows = 0;
    __device__ __forceinline__ explicit RowsAsTheyLie(int rows) : rows(rows) {}
    __device__ __forceinline__ int64_t place(const ScaleMatrix& scales, const ScaledWork& work, int token) const {
        return work.group * scales.group + int64_t(work.token - work.group * rows + token) * scales.row;
    }
};

// Of both operands, by a whole warp of each CTA.
template <class Tile, class Rows>
struct ScalesByHand {
    static constexpr int AHEAD = 4, TOKENS = 4, EACH = Rows::SCALES_OF_WEIGHTS;
    static constexpr int WEIGHTS = EACH * (Tile::SWAPPED ? 1 : Tile::RIGHT_TILES);
    static_assert(Tile::Kind::SCALE_TILES == 1 && (!Tile::SWAPPED || Tile::RIGHT_TILES == 1));

    ScaleMatrix a, b;
    Rows rows;

    __device__ __forceinline__ void prefetch_maps() const {}

    __device__ __forceinline__ void load(Tile& tile, Ring<Tile::SCALE_STAGES>& ring, const ScaledWork& work, int rank) const {
        const int lane = threadIdx.x % 32;
        const uint8_t *token[TOKENS], *weight[WEIGHTS];  // null: nobody's
        const int64_t token_step = a.bytes(a.block), weight_step = b.bytes(b.block);
        const int first_block = rows.first_block(work);
#pragma unroll
        for (int i = 0; i < TOKENS; i++) {
            const int row = (Tile::SWAPPED ? 0 : rank * LANES) + 32 * i + lane;
            const int64_t place = row < work.rows ? rows.place(a, work, row) : -1;
            token[i] = place < 0 ? nullptr : a.first + a.bytes(place) + first_block * token_step;
        }
#pragma unroll
        for (int i = 0; i < WEIGHTS; i++) {
            const int row = ((Tile::SWAPPED ? rank : 0) * EACH + i) * (SCALE_TILE_ROWS / EACH) + (EACH == 4 ? lane : 0);
            weight[i] =
                row >= work.columns ? nullptr : b.first + b.bytes(rows.place_of_weight(b, work, row)) + first_block * weight_step;
        }
        constexpr int EACH_LINE = TOKENS + WEIGHTS, ALL = AHEAD * EACH_LINE;
        uint32_t now[ALL] = {}, next[ALL];
#pragma unroll 1
        for (int first = work.first_line - AHEAD; first < work.end_line; first += AHEAD) {
#pragma unroll
            for (int i = 0; i < ALL; i++) {
                const int line = first + AHEAD + i / EACH_LINE, which = i % EACH_LINE;
                const uint8_t* place = which < TOKENS ? token[which % TOKENS] : weight[which < TOKENS ? 0 : which - TOKENS];
                const ScaleMatrix& scales = which < TOKENS ? a : b;
                next[i] = line < work.end_line && place != nullptr
                              ? scales.at(place + line * (which < TOKENS ? token_step : weight_step))
                              : 0;
            }
            // A line at a time, always in the same registers, through which the others move on: what is written once is short.
#pragma unroll 1
            for (int line = max(first, work.first_line); line < min(first + AHEAD, work.end_line); line++) {
                write(tile, ring, now, line, work);
                ring.advance();
#pragma unroll
                for (int i = 0; i < ALL - EACH_LINE; i++) now[i] = now[i + EACH_LINE];
            }
#pragma unroll
            for (int i = 0; i < ALL; i++) now[i] = next[i];
        }
    }

   private:
    // A line's tiles, of its scales: tokens', then weights'.
    template <int ALL>
    __device__ __forceinline__ void write(Tile& tile, const Ring<Tile::SCALE_STAGES>& ring, const uint32_t (&line_scales)[ALL],
                                          int line, const ScaledWork& work) const {
        const int lane = threadIdx.x % 32;
        typename Tile::ScaleStage& stage = tile.scales[ring.stage];
        wait(&tile.scales_empty[ring.stage], ring.parity ^ 1);
        uint4* of_tokens = reinterpret_cast<uint4*>(Tile::SWAPPED ? stage.right[0] : stage.left);
        of_tokens[lane] = {a.word(line_scales[0]), a.word(line_scales[1]), a.word(line_scales[2]), a.word(line_scales[3])};
#pragma unroll
        for (int j = 0; j < WEIGHTS; j += EACH) {
            uint32_t words[4];
#pragma unroll
            for (int k = 0; k < 4; k++) words[k] = b.word(line_scales[TOKENS + j + k * EACH / 4]);
            reinterpret_cast<uint4*>(Tile::SWAPPED ? stage.left : stage.right[j / EACH])[lane] = {words[0], words[1], words[2],
                                                                                                  words[3]};
        }
        if constexpr (Rows::ENDS_WITHIN_STEPS)
            if (line + 1 == work.end_line) rows.clear_rest_of_step(tile, ring, work);
        let_copies_see_shared_memory();
        __syncwarp();
        if (elected()) publish_at_first<Tile::CTAS>(&tile.scales_full[ring.stage]);
        __syncwarp();
    }
};

}  // namespace zoo
