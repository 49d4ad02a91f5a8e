// Products whose weights are gates and ups, I of each, of which D's I columns are made. Where they are interleaved, the even rows of B
// are gates and the odd ones ups; in halves the first I rows are gates, the others ups, and I is a multiple of 128:
//
//                         interleaved                               in halves
//     tokens as rows      128 columns of D are 256 rows of B        128 columns of D are 128 gates and, I rows further, 128 ups:
//                                                                   the other half of the product's columns, of a pair the other CTA's
//     tokens as columns   64 columns of D are 128 rows of B         128 columns of D are two products, one after the other
#pragma once

#include "gemm/block_scaled/activation.cuh"
#include "gemm/block_scaled/load.cuh"
#include "gemm/block_scaled/order.cuh"
#include "gemm/block_scaled/product.cuh"

namespace zoo {

// An order of tiles of D, as if B had I rows; what a product takes of B for each.
template <class Tile, class Order>
struct GatedOrder {
    Order order;
    int I;
    bool interleaved;

    __device__ __forceinline__ bool at(int index, ScaledWork& work) {
        if (!order.at(index, work)) return false;
        const int row = interleaved ? 2 * work.column : work.column;  // of its group's B
        work.weight = 2 * work.group * I + row;
        work.weight_scales = work.group * tiles_of(2 * I, SCALE_TILE_ROWS) + row / SCALE_TILE_ROWS;
        if (interleaved || !Tile::SWAPPED) work.columns *= 2;
        return true;
    }
};

template <class Tile, class Order, class What>
__device__ __forceinline__ void each_work(GatedOrder<Tile, Order>& order, int index, What what) {
    ScaledWork work = {};
    if (!order.at(index, work)) return;
    const int products = Tile::SWAPPED && !order.interleaved ? 2 : 1;
#pragma unroll 1
    for (int i = 0; i < products; i++) {
        what(work);
        work.weight += order.I;
        work.weight_scales += order.I / SCALE_TILE_ROWS;
    }
}

// Tokens as rows. Rows of B come in boxes of 128, `up_rows` apart; 0: they follow each other.
template <class Tile>
struct GatedElements {
    static constexpr int BOX = 128;
    static_assert(!Tile::SWAPPED && Tile::COLUMNS == 2 * BOX);
    const TensorMap &a, &b;
    int up_rows;
    int weight_bytes = LINE_BYTES;  // of a line of B, as barriers count them

    __device__ __forceinline__ void prefetch_maps() const {
        prefetch(a);
        prefetch(b);
    }

    // By a whole warp of each CTA, of which one thread does it.
    __device__ __forceinline__ void load(Tile& tile, Ring<Tile::STAGES>& ring, const ScaledWork& work, int rank) const {
        if (!elected()) return;
        const Sides<Tile> sides(work);
        const int boxes = Tile::CTAS > 1 ? 1 : (sides.used + BOX - 1) / BOX;  // of this CTA
        const int step = up_rows > 0 ? up_rows : Tile::CTAS > 1 ? sides.used / Tile::CTAS : BOX;
#pragma unroll 1
        for (int line = work.first_line; line < work.end_line; line++, ring.advance()) {
            typename Tile::Stage& stage = tile.stages[ring.stage];
            Barrier* full = &tile.full[ring.stage];
            wait(&tile.empty[ring.stage], ring.parity ^ 1);
            if (rank == 0) arrive_expecting_bytes(full, Tile::CTAS * (LANES * LINE_BYTES + boxes * BOX * weight_bytes));
            load_box_for<Tile::CTAS>(stage.left, a, line * LINE_BYTES, sides.left + rank * LANES, full);
#pragma unroll 1
            for (int i = 0; i < boxes; i++)
                load_box_for<Tile::CTAS>(stage.right + i * BOX * LINE_BYTES, b, line * LINE_BYTES,
                                         sides.right + (rank + i) * step, full);
        }
    }
};

// From sums to h: times alpha, plus bias, activated, times the row's factor, each rounded to f32. Factors are 1 where there are none.
struct Gated {
    const Finish& finish;
    Activation activation;
    int I;
    bool interleaved;

    // Of a row's sums of a gate and its up.
    __device__ __forceinline__ float of_two(float gate, float up, const Finish::Row& of, int group, int column) const {
        gate = finish.with_bias(gate, of, group, interleaved ? 2 * column : column);
        up = finish.with_bias(up, of, group, interleaved ? 2 * column + 1 : I + column);
        return __fmul_rn(activation(gate, up), of.factor);
    }

    // Of the sums of 32 neighbouring columns of a row: first and second half gates and ups, or all alternating. h before
    // column `end` alone, of which there are eights.
    __device__ __forceinline__ void of_segment(float (&sums)[2][SEGMENT], const Finish::Row& of, int group, int column, int end,
                                               float (&h)[SEGMENT]) const {
#pragma unroll
        for (int i = 0; i < 2 * SEGMENT; i += 8) {
            const int first = interleaved ? 2 * column + i : i < SEGMENT ? column + i : I + column + i - SEGMENT;
            if (column + (interleaved ? i / 2 : i % SEGMENT) < end)
                finish.add_bias(&sums[i / SEGMENT][i % SEGMENT], of, group, first);
        }
        uint32_t alternating = interleaved;
        asm volatile("" : "+r"(alternating));  // opaque: or the compiler writes what follows twice
        float gates[SEGMENT], ups[SEGMENT];
#pragma unroll
        for (int i = 0; i < SEGMENT; i++) {
            const float *even = &sums[2 * i / SEGMENT][2 * i % SEGMENT], *odd = even + 1;
            gates[i] = alternating ? *even : sums[0][i];
            ups[i] = alternating ? *odd : sums[1][i];
        }
        // A part at a time, always in the same registers, into which the others move on: what is written once is short.
        constexpr int PART = 16, OTHERS = SEGMENT - PART;
#pragma unroll 1
        for (int first = 0; first < SEGMENT; first += PART) {
            float activated[PART];
#pragma unroll
            for (int i = 0; i < PART; i++)
                activated[i] = column + first + i / 8 * 8 < end ? __fmul_rn(activation(gates[i], ups[i]), of.factor) : 0;
#pragma unroll
            for (int i = 0; i < OTHERS; i++) {
                gates[i] = gates[i + PART];
                ups[i] = ups[i + PART];
                h[i] = h[i + PART];
            }
#pragma unroll
            for (int i = 0; i < PART; i++) h[OTHERS + i] = activated[i];
        }
    }
};

}  // namespace zoo
