// The loop over K of an fp8b128 GEMM. Producer warps load stages. Math warps multiply a stage, release it, and promote:
//
//     producers   |0 1 2 3| wait until 0 is released, 4, wait for 1, 5 ...
//     warpgroup 0 |   0 ####pp 1 ####pp 2 ####pp          # tensor cores: four wgmmas, 128 along K
//     warpgroup 1 |       0 ####pp 1 ####pp 2 ####pp      p promotion: sums += partial sums * scales, in f32
//
// The tensor cores keep 13 bits of fraction. So the sum of each K block is multiplied by the block's two scales and promoted to f32 registers.
// Promotion costs one fma for 128 multiply-adds of the tensor cores: a quarter of their time. While a warpgroup promotes, the wgmmas of the
// others run. Only the stages synchronise warpgroups. A K block needs 807 cycles at 192 x 128 with three warpgroups, 768 of them for the tensor
// cores. It needs 870 cycles at 128 x 192 with two warpgroups (H200).
//
// Every element is, to the bit: scale = a_scale * b_scale, rounded; sum = fma(partial, scale, sum), one K block after the other. A partial
// sum is four wgmmas, each of which adds 32 products by the rule of docs/emulator.md.
//
// Included by all kernels of this family.
#pragma once

#include <cstdint>

#include "common/mbarrier.cuh"
#include "common/wgmma.cuh"
#include "gemm/hopper_fp8/tile.cuh"

namespace zoo {

// The products of scales that a thread multiplies the partial sums of a pass by.
template <class Tile, bool SWAPPED = Tile::SWAPPED>
struct ScaleProducts;

template <class Tile>
struct ScaleProducts<Tile, false> {  // tokens are rows: a thread has two rows, and a scale for each part of the columns
    static constexpr bool READ_FROM_STAGE = false;
    static constexpr int PARTS =
        Tile::STRADDLES ? Tile::WEIGHT_SCALES : (Tile::COLUMNS + Tile::WEIGHTS_PER_SCALE - 1) / Tile::WEIGHTS_PER_SCALE;
    float row[PARTS][2];

    __device__ __forceinline__ ScaleProducts(const Tile& tile, int stage, int first_row, int first_column = 0) {
        const float* scales = tile.token_scales[stage] + first_row + accumulator_row(0);
#pragma unroll
        for (int part = 0; part < PARTS; part++) {
            const float weight = tile.weight_scales[stage][first_column / Tile::WEIGHTS_PER_SCALE + part];
            row[part][0] = scales[0] * weight;
            row[part][1] = scales[8] * weight;
        }
    }
    template <int SPLIT>
    __device__ __forceinline__ float of(int j) const {
        const int column = j / 4 * 8;
        constexpr int NEXT = SPLIT + SCALE_BLOCK;
        return row[Tile::STRADDLES ? (column >= SPLIT) + (column >= NEXT) : column / Tile::WEIGHTS_PER_SCALE][j / 2 % 2];
    }
};

template <class Tile>
struct ScaleProducts<Tile, true> {  // tokens are columns: producers have stored products; a thread has two columns of every eight
    static constexpr int PIECE_SUMS = Tile::SUMS % 8 == 0 ? 8 : 4,
                         PIECES = Tile::SUMS / PIECE_SUMS;  // a piece has the products of PIECE_SUMS sums
    // Pieces that are read while the wgmmas run. If AHEAD is PIECES, the stage is free when the wgmmas end. Otherwise registers limit AHEAD.
    static constexpr int AHEAD = PIECES <= 2 || PIECES <= 8 && Tile::WARPGROUPS < 3 && !Tile::OVERLAPPED ? PIECES
                                 : PIECES == 8 && Tile::WARPGROUPS == 1                                  ? 4
                                                                                                         : 1;
    static constexpr bool READ_FROM_STAGE = AHEAD < PIECES;
    struct alignas(PIECE_SUMS * 2) Piece {
        float of[PIECE_SUMS / 2];
    };
    Piece first[AHEAD];
    const Piece* pieces;

    __device__ __forceinline__ ScaleProducts(const Tile& tile, int stage, int first_row, int = 0) {
        if constexpr (Tile::WEIGHTS_PER_ENTRY < WGMMA_ROWS)
            first_row += threadIdx.x % WARPGROUP / 32 * 16;  // a warp has 16 rows of the 64
        const int entry = first_row / Tile::WEIGHTS_PER_ENTRY;
        pieces = reinterpret_cast<const Piece*>(tile.token_scales[stage][entry][threadIdx.x % 4]);
#pragma unroll
        for (int i = 0; i < AHEAD; i++) first[i] = pieces[i];
    }
};

template <int PASSES, int SUMS>
__device__ __forceinline__ void clear(float (&sums)[PASSES][SUMS]) {
#pragma unroll
    for (int pass = 0; pass < PASSES; pass++)
#pragma unroll
        for (int j = 0; j < SUMS; j++) sums[pass][j] = 0;
}

// Issues the wgmmas of a pass over a K block, as one group.
template <class Tile>
__device__ __forceinline__ void start_pass(const Tile& tile, int stage, int row, int column, float (&partial)[Tile::SUMS]) {
    const uint8_t* rows = Tile::SWAPPED ? tile.weights[stage] : tile.tokens[stage];
    const uint8_t* columns = Tile::SWAPPED ? tile.tokens[stage] : tile.weights[stage];
    const uint64_t a = matrix_descriptor(rows + row * SCALE_BLOCK), b = matrix_descriptor(columns + column * SCALE_BLOCK);
    hold(partial);
    fence_registers();
#pragma unroll
    for (int step = 0; step < SCALE_BLOCK / WGMMA_DEPTH; step++)
        multiply<Tile::COLUMNS>(partial, a + 2 * step, b + 2 * step, step > 0);
    commit_multiplications();
    hold(partial);
}

// promote() where tokens are columns.
template <class Tile>
__device__ __forceinline__ void promote_columns(float (&sums)[Tile::SUMS], const float (&partial)[Tile::SUMS],
                                                const ScaleProducts<Tile>& factors) {
    using F = ScaleProducts<Tile>;
    typename F::Piece pieces[F::PIECES];
#pragma unroll
    for (int i = 0; i < F::AHEAD; i++) pieces[i] = factors.first[i];
#pragma unroll
    for (int i = 0; i < F::PIECES; i++) {
        if (i + F::AHEAD < F::PIECES) pieces[i + F::AHEAD] = factors.pieces[i + F::AHEAD];
#pragma unroll
        for (int j = 0; j < F::PIECE_SUMS; j++)
            sums[i * F::PIECE_SUMS + j] =
                fmaf(partial[i * F::PIECE_SUMS + j], pieces[i].of[j / 4 * 2 + j % 2], sums[i * F::PIECE_SUMS + j]);
    }
}

// The first SPLIT columns have the first scale of B.
template <class Tile, int SPLIT = Tile::COLUMNS>
__device__ __forceinline__ void promote(float (&sums)[Tile::SUMS], const float (&partial)[Tile::SUMS],
                                        const ScaleProducts<Tile>& factors) {
    if constexpr (Tile::SWAPPED) {
        promote_columns(sums, partial, factors);
    } else {
#pragma unroll
        for (int j = 0; j < Tile::SUMS; j++) sums[j] = fmaf(partial[j], factors.template of<SPLIT>(j), sums[j]);
    }
}

// OVERLAPPED: with two sets of partial sums, the wgmmas of the next K block run while this block's sums are promoted.
template <class Tile, int SPLIT>
__device__ __forceinline__ void multiply_overlapped(Tile& tile, Ring<Tile::STAGES>& ring, int blocks, int row,
                                                    float (&sums)[Tile::SUMS]) {
    // Votes tell ptxas that the warp stays converged, so that it keeps descriptors in uniform registers. Kernels with clusters or gates need no
    // vote, which would cost time.
    constexpr bool VOTES =
        Tile::SWAPPED && Tile::CTAS_PER_RESULT == 1 && Tile::SHARERS == 1 && Tile::WEIGHTS_PER_SCALE == SCALE_BLOCK;
    if (VOTES ? __all_sync(0xFFFFFFFF, blocks == 0) != 0 : blocks == 0) return;
    float even[Tile::SUMS], odd[Tile::SUMS];
    int stage;  // its wgmmas are running
    auto start = [&](float (&partial)[Tile::SUMS]) {
        tile.wait_until_full(ring);
        stage = ring.stage;
        start_pass(tile, stage, row, 0, partial);
        ring.advance();
    };
    auto finish = [&](const ScaleProducts<Tile>& factors, int finished, float (&partial)[Tile::SUMS]) {
        hold(partial);
        if constexpr (!ScaleProducts<Tile>::READ_FROM_STAGE) tile.release(finished);
        promote<Tile, SPLIT>(sums, partial, factors);
        if constexpr (ScaleProducts<Tile>::READ_FROM_STAGE) tile.release(finished);
    };
    auto step = [&](float (&running)[Tile::SUMS], float (&next)[Tile::SUMS]) {
        const ScaleProducts<Tile> factors(tile, stage, row);
        const int finished = stage;
        start(next);
        wait_for_multiplications<1>();
        finish(factors, finished, running);
    };
    auto end = [&](float (&running)[Tile::SUMS]) {
        const ScaleProducts<Tile> factors(tile, stage, row);
        wait_for_multiplications<0>();
        finish(factors, stage, running);
    };
    start(even);
    for (; VOTES ? __any_sync(0xFFFFFFFF, blocks > 2) != 0 : blocks > 2; blocks -= 2) {
        step(even, odd);
        step(odd, even);
    }
    if (blocks == 2) {
        step(even, odd);
        end(odd);
    } else {
        end(even);
    }
}

// One set of partial sums, where registers do not suffice for two: only the wgmmas of other warpgroups run during promotion.
template <class Tile, int SPLIT>
__device__ __forceinline__ void multiply_passes(Tile& tile, Ring<Tile::STAGES>& ring, int blocks, int first_row,
                                                float (&sums)[Tile::PASSES][Tile::SUMS]) {
    // Unrolled, the loop tests the next stage while it promotes the last pass. STRADDLES tiles have many loops: unrolled, 250 KB of code.
    constexpr int UNROLLED = Tile::SWAPPED || Tile::STRADDLES ? 1 : 4;
#pragma unroll UNROLLED
    for (; blocks > 0; blocks--, ring.advance()) {
        tile.wait_until_full(ring);
#pragma unroll
        for (int pass = 0; pass < Tile::PASSES; pass++) {
            const int row = first_row + pass / Tile::COLUMN_PASSES * WGMMA_ROWS;
            const int column = pass % Tile::COLUMN_PASSES * Tile::COLUMNS;
            const ScaleProducts<Tile> factors(tile, ring.stage, row, column);
            constexpr bool READ = !ScaleProducts<Tile>::READ_FROM_STAGE;
            float partial[Tile::SUMS];
            start_pass(tile, ring.stage, row, column, partial);
            wait_for_multiplications<0>();
            hold(partial);
            if (READ && pass == Tile::PASSES - 1) tile.release(ring.stage);
            promote<Tile, SPLIT>(sums[pass], partial, factors);
            if (!READ && pass == Tile::PASSES - 1) tile.release(ring.stage);
        }
    }
}

template <class Tile, int SPLIT>
__device__ __forceinline__ void multiply_blocks(Tile& tile, Ring<Tile::STAGES>& ring, int blocks, int first_row,
                                                float (&sums)[Tile::PASSES][Tile::SUMS]) {
    if constexpr (Tile::OVERLAPPED) {
        multiply_overlapped<Tile, SPLIT>(tile, ring, blocks, first_row, sums[0]);
    } else {
        multiply_passes<Tile, SPLIT>(tile, ring, blocks, first_row, sums);
    }
}

// One loop for each position of the boundary between scales, so promotion needs no branch.
template <class Tile, int SPLIT>
__device__ __forceinline__ void multiply_split(Tile& tile, Ring<Tile::STAGES>& ring, int blocks, int first_row, int split,
                                               float (&sums)[Tile::PASSES][Tile::SUMS]) {
    if constexpr (SPLIT < Tile::COLUMNS) {
        if (split > SPLIT) return multiply_split<Tile, SPLIT + Tile::SPLIT_UNIT>(tile, ring, blocks, first_row, split, sums);
    }
    multiply_blocks<Tile, SPLIT>(tile, ring, blocks, first_row, sums);
}

// Multiplies the K blocks of a tile whose first pass is running already, with its sums in `partial`.
template <class Tile>
__device__ __forceinline__ void multiply_started(Tile& tile, Ring<Tile::STAGES>& ring, int blocks, int first_row,
                                                 float (&partial)[Tile::SUMS], float (&sums)[Tile::PASSES][Tile::SUMS]) {
    static_assert(!Tile::SWAPPED && !Tile::OVERLAPPED && !Tile::STRADDLES && Tile::COLUMN_PASSES == 1);
    auto multiply_pass = [&](int pass, bool started) {
        const int row = first_row + pass * WGMMA_ROWS;
        const ScaleProducts<Tile> factors(tile, ring.stage, row);
        if (!started) start_pass(tile, ring.stage, row, 0, partial);
        wait_for_multiplications<0>();
        hold(partial);
        if (pass == Tile::PASSES - 1) tile.release(ring.stage);
        promote(sums[pass], partial, factors);
    };
    clear(sums);
#pragma unroll
    for (int pass = 0; pass < Tile::PASSES; pass++) multiply_pass(pass, pass == 0);
    ring.advance();
#pragma unroll 4
    for (blocks--; blocks > 0; blocks--, ring.advance()) {
        tile.wait_until_full(ring);
#pragma unroll
        for (int pass = 0; pass < Tile::PASSES; pass++) multiply_pass(pass, false);
    }
}

// A math warpgroup calls this: it multiplies its passes of a tile that begins at column `column` of D.
template <class Tile>
__device__ __forceinline__ void multiply(Tile& tile, Ring<Tile::STAGES>& ring, int blocks,
                                         float (&sums)[Tile::PASSES][Tile::SUMS], int column = 0) {
    const int first_row = warpgroup_index() * (Tile::ROW_PASSES * WGMMA_ROWS);
    clear(sums);
    if constexpr (Tile::STRADDLES)
        multiply_split<Tile, Tile::SPLIT_UNIT>(tile, ring, blocks, first_row, SCALE_BLOCK - column % SCALE_BLOCK, sums);
    else
        multiply_blocks<Tile, Tile::COLUMNS>(tile, ring, blocks, first_row, sums);
}

}  // namespace zoo
