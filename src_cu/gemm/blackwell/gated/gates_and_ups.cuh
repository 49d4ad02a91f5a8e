// SwiGLU: which rows of B are a tile's gates and ups, how they are copied, and h = activation(gate) * up. Kernels with SwiGLU include it.
//
// B has I gates and I ups, and the result has I columns. Interleaved: even rows of B are gates, odd rows are ups. In halves: the first I rows are
// gates, the other I rows are ups, and I is a multiple of 128 (fp8b128: of 64).
//
//                         interleaved                                  in halves
//     tokens as rows      128 result columns are 256 rows of B         128 result columns are 128 gates, and 128 ups I rows further:
//                                                                      the sums' second half of columns; in a pair, the other CTA's rows
//     SWAPPED             64 result columns are 128 rows of B          128 result columns are two products of 128 rows, gates and ups
#pragma once

#include "gemm/blackwell/epilogue/finish.cuh"
#include "gemm/blackwell/pipeline.cuh"
#include "gemm/epilogue/activation.cuh"

namespace zoo {

// The order of gates and ups in the rows of B.
enum class Gates { halves, interleaved };

// The work of a tile of the result: for_each_work() makes two of it if gates and ups are two products. `tiles` finds tiles as if B had I rows.
template <class Tile, class Tiles>
struct GatedTiles {
    Tiles tiles;
    int I;
    bool interleaved;

    __device__ __forceinline__ bool at(int index, TileWork& work) {
        if (!tiles.at(index, work)) return false;
        const int row = interleaved ? 2 * work.column : work.column;  // of the group's B
        work.weight = 2 * work.group * I + row;
        work.weight_scales = work.group * ceil_div(2 * I, SCALE_TILE_ROWS) + row / SCALE_TILE_ROWS;
        if (interleaved || !Tile::SWAPPED) work.columns *= 2;
        return true;
    }
};

template <class Tile, class Tiles, class What>
__device__ __forceinline__ bool for_each_work(GatedTiles<Tile, Tiles>& gated, int index, What what) {
    TileWork work = {};
    if (!gated.at(index, work)) return false;
    const int products = Tile::SWAPPED && !gated.interleaved ? 2 : 1;
#pragma unroll 1
    for (int i = 0; i < products; i++) {
        what(work);
        work.weight += gated.I;
        work.weight_scales += gated.I / SCALE_TILE_ROWS;
    }
    return true;
}

// The element producer where tokens are rows: boxes of 128 rows of B. The ups' box is `up_rows` rows after the gates' box; 0: it follows.
template <class Tile>
struct GatedElementLoader {
    static constexpr int BOX = 128;
    static_assert(!Tile::SWAPPED && Tile::COLUMNS == 2 * BOX);
    const TensorMap &a, &b;
    int up_rows;
    int weight_row_bytes = K_BLOCK_BYTES;  // as barriers count them

    __device__ __forceinline__ void prefetch_maps() const {
        prefetch(a);
        prefetch(b);
    }

    // A whole warp of each CTA calls this. One thread copies, and calls halfway().
    __device__ __forceinline__ void load(Tile& tile, Ring<Tile::STAGES>& ring, const TileWork& work, int rank,
                                         auto halfway) const {
        if (!elected()) return;
        const MmaRows<Tile> rows(work);
        const int boxes = Tile::CTAS > 1 ? 1 : (rows.columns + BOX - 1) / BOX;  // of this CTA
        const int step = up_rows > 0 ? up_rows : Tile::CTAS > 1 ? rows.columns / Tile::CTAS : BOX;
#pragma unroll 1
        for (int block = work.first_block; block < work.end_block; block++, ring.advance()) {
            if (block == (work.first_block + work.end_block) / 2) halfway();
            typename Tile::Stage& stage = tile.stages[ring.stage];
            Barrier* full = &tile.full[ring.stage];
            wait(&tile.empty[ring.stage], ring.parity ^ 1);
            if (rank == 0) arrive_expecting_bytes(full, Tile::CTAS * (LANES * K_BLOCK_BYTES + boxes * BOX * weight_row_bytes));
            load_box_for<Tile::CTAS>(stage.mma_a, a, block * K_BLOCK_BYTES, rows.a + rank * LANES, full);
#pragma unroll 1
            for (int i = 0; i < boxes; i++)
                load_box_for<Tile::CTAS>(stage.mma_b + i * BOX * K_BLOCK_BYTES, b, block * K_BLOCK_BYTES,
                                         rows.b + (rank + i) * step, full);
        }
    }
};

// Turns sums into h: times alpha, plus bias, activation(gate) * up, times row_scale. Each step is rounded to f32.
struct GatedActivation {
    const Finish& finish;
    Activation activation;
    int I;
    bool interleaved;

    // `gate` and `up` are a row's sums of a gate and its up.
    __device__ __forceinline__ float h(float gate, float up, const Finish::Row& row, int group, int column) const {
        gate = finish.with_bias(gate, row, group, interleaved ? 2 * column : column);
        up = finish.with_bias(up, row, group, interleaved ? 2 * column + 1 : I + column);
        return __fmul_rn(activation(gate, up), row.scale);
    }

    // `sums` are 32 gates, then 32 ups, or both alternating. h is 0 from column `end` on, a multiple of 8.
    __device__ __forceinline__ void h_of_segment(float (&sums)[2][SEGMENT], const Finish::Row& row, int group, int column,
                                                 int end, float (&h)[SEGMENT]) const {
#pragma unroll
        for (int i = 0; i < 2 * SEGMENT; i += 8) {
            const int first = interleaved ? 2 * column + i : i < SEGMENT ? column + i : I + column + i - SEGMENT;
            if (column + (interleaved ? i / 2 : i % SEGMENT) < end)
                finish.add_bias_to_eight(&sums[i / SEGMENT][i % SEGMENT], row, group, first);
        }
        uint32_t alternating = interleaved;
        asm volatile("" : "+r"(alternating));  // hides the value: else the compiler makes two copies of the following code
        float gates[SEGMENT], ups[SEGMENT];
#pragma unroll
        for (int i = 0; i < SEGMENT; i++) {
            const float *even = &sums[2 * i / SEGMENT][2 * i % SEGMENT], *odd = even + 1;
            gates[i] = alternating ? *even : sums[0][i];
            ups[i] = alternating ? *odd : sums[1][i];
        }
        // Every pass computes the first registers and shifts the others down, so that the activation's code exists once.
        constexpr int PART = 16, OTHERS = SEGMENT - PART;
#pragma unroll 1
        for (int first = 0; first < SEGMENT; first += PART) {
            float activated[PART];
#pragma unroll
            for (int i = 0; i < PART; i++)
                activated[i] = column + first + i / 8 * 8 < end ? __fmul_rn(activation(gates[i], ups[i]), row.scale) : 0;
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
