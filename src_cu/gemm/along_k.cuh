// Groups that lie along K, as weight gradients contract them: D of a group = A (M, its rows of K) B (N, its rows of K)^T.
//
// Blocks of 128 begin anew with every group, wherever that is, and so do their scales, of which both A and B have one for each
// row and block. A group's last block is cut where the group ends:
//
//     K            |    group 0    |  group 1     | nobody's
//     blocks       |  0  |  1  | 2 |  3  |  4  | 5|
//     copied       |=====|=====|=====                       128 of K always, so the last copy brings what is not the group's
//                                  |=====|=====|=====
//
// What is not the group's may be NaN in both operands, so it is overwritten with zeros in shared memory first:
//
//     copying thread     announces the bytes of a cut block on `landed` in place of `full`
//     cutting warp       waits for `landed`, writes zeros, and arrives at `full`
//
// The multiplying warps know nothing of it, and the loading ones are a ring of stages ahead: it takes nobody's time. The copy
// engine wants coordinates at multiples of 16 bytes, so groups begin at such rows.
#pragma once

#include <cstdint>

#include "common/mbarrier.cuh"
#include "common/tensor_copy.cuh"
#include "gemm/fp8b128_tile.cuh"
#include "gemm/operands.cuh"
#include "gemm/store_rows.cuh"
#include "gemm/tile_order.cuh"

namespace zoo {

// Scales come as boxes, too: a block of K is a row of them. So nobody but the copying thread arrives at `full`, or, of cut
// blocks, the cutting warp.
template <int TOKENS, int WEIGHTS, int STAGES, int WARPGROUPS>
struct TileAlongK : Fp8b128Tile<TOKENS, WEIGHTS, STAGES, WARPGROUPS, false, false, 1> {
    static constexpr uint32_t STAGE_BYTES = (TOKENS + WEIGHTS) * (SCALE_BLOCK + 4), FULL_ARRIVALS = 1;
    static constexpr bool HUNGRY = true;
    static constexpr int LOADER_REGISTERS = 32, MATH_REGISTERS = 160;  // the loading warps have no scales to hold
    static constexpr int THREADS = (WARPGROUPS + 1) * 128, REGISTERS_AT_LAUNCH = 65536 / THREADS / 8 * 8;
    static_assert(LOADER_REGISTERS + WARPGROUPS * MATH_REGISTERS <= (WARPGROUPS + 1) * REGISTERS_AT_LAUNCH,
                  "a CTA that asks for more than it was started with waits for ever");

    alignas(1024) Barrier landed[STAGES];

    __device__ __forceinline__ void initialise() {
        this->initialise_ring(FULL_ARRIVALS);
#pragma unroll
        for (int stage = 0; stage < STAGES; stage++) zoo::initialise(&landed[stage], 1);
    }

    // By a warp: of 128 bytes of every row, all but the first `kept` become zero.
    __device__ __forceinline__ void cut(int stage, int kept) {
#pragma unroll 1
        for (int row = threadIdx.x % 32; row < TOKENS + WEIGHTS; row += 32) {
            uint8_t* line = row < TOKENS ? this->tokens[stage] + row * SCALE_BLOCK
                                         : this->weights[stage] + (row - TOKENS) * SCALE_BLOCK;
#pragma unroll 1
            for (int first = kept / 16 * 16; first < SCALE_BLOCK; first += 16) {
                uint4* piece = reinterpret_cast<uint4*>(line + (first ^ row % 8 * 16));
                const uint4 old = *piece;
                *piece = make_uint4(first_bytes(old.x, kept - first), first_bytes(old.y, kept - first - 4),
                                    first_bytes(old.z, kept - first - 8), first_bytes(old.w, kept - first - 12));
            }
        }
        let_copies_see_shared_memory();
        __syncwarp();
    }

   private:
    static __device__ __forceinline__ uint32_t first_bytes(uint32_t word, int count) {
        return count <= 0 ? 0 : count >= 4 ? word : word & (1u << 8 * count) - 1;
    }
};

// A (M, K) and B (N, K), and their scales (blocks, M) and (blocks, N).
template <class Tile>
struct OperandsAlongK {
    const TensorMap &a, &b, &a_scales, &b_scales;

    __device__ __forceinline__ void prefetch_maps() const {
        prefetch(a);
        prefetch(b);
        prefetch(a_scales);
        prefetch(b_scales);
    }

    static __device__ __forceinline__ bool is_cut(const Work& work, int block) {
        return block + 1 == work.end_block && work.rows_of_last < SCALE_BLOCK;
    }

    __device__ __forceinline__ void load_elements(Tile& tile, int stage, const Work& work, int block) const {
        const int row = work.first_row + (block - work.first_block) * SCALE_BLOCK;
        Barrier* landed = is_cut(work, block) ? &tile.landed[stage] : &tile.full[stage];
        arrive_expecting_bytes(landed, Tile::STAGE_BYTES);
        load_box(tile.weights[stage], b, row, work.weight, landed);
        load_box(tile.tokens[stage], a, row, work.token, landed);
        load_box(tile.token_scales[stage], a_scales, work.token, block, landed);
        load_box(tile.weight_scales[stage], b_scales, work.weight, block, landed);
    }
};

// By the cutting warp. Which phase comes next on a stage's `landed` is counted apart, a bit a stage: not every round cuts.
template <class Tile, class Order>
__device__ __forceinline__ void cut_last_blocks(Tile& tile, Order order) {
    Ring<Tile::STAGES> ring;
    uint32_t parities = 0;
    for (Work work; order.next(work);) {
        const int blocks = work.end_block - work.first_block;
        if (work.rows_of_last < SCALE_BLOCK && blocks > 0) {
            const int stage = (ring.stage + blocks - 1) % Tile::STAGES;
            wait(&tile.landed[stage], parities >> stage & 1);
            parities ^= 1u << stage;
            tile.cut(stage, work.rows_of_last);
            if (threadIdx.x % 32 == 0) arrive(&tile.full[stage]);
        }
        ring.stage = (ring.stage + blocks) % Tile::STAGES;
    }
}

// By the loading warps: the first copies, the second cuts.
template <class Tile, class Order>
__device__ __forceinline__ void load(Tile& tile, Order order, const OperandsAlongK<Tile>& operands) {
    const int thread = threadIdx.x - Tile::MATH_THREADS;
    if (thread == 0) load_elements(tile, order, operands);
    if (thread / 32 == 1) cut_last_blocks(tile, order);
}

// Persistent CTAs; every group has a D of the same size, M x N. Each role walks along the groups, since a group's first block is
// known only from the sizes before it.
template <class Tile, int BAND>
struct OrderAlongK {
    static constexpr bool UNEVEN = true;
    const int* ends;
    int count, M, N;   // groups; the size of D
    bool leave_empty;  // no tiles for groups without rows of K
    int index = blockIdx.x;
    int group = -1, first_row = 0, end_row = 0, first_block = 0;

    __device__ __forceinline__ OrderAlongK(const int* ends, int count, int M, int N, bool leave_empty)
        : ends(ends), count(count), M(M), N(N), leave_empty(leave_empty) {}

    __device__ __forceinline__ bool next(Work& work) {
        const int rows = tiles_of(M, Tile::TOKENS), columns = tiles_of(N, Tile::WEIGHTS), each = rows * columns;
        for (;; index += gridDim.x) {
            while (index >= (group + 1) * each) {
                if (++group >= count) return false;
                first_block += tiles_of(end_row - first_row, SCALE_BLOCK);
                first_row = end_row;
                end_row = ends[group];
            }
            if (!leave_empty || end_row > first_row) break;
        }
        const Banded<BAND> place(index - group * each, rows, columns);
        const int end_block = first_block + tiles_of(end_row - first_row, SCALE_BLOCK);
        work = {place.row * Tile::TOKENS, place.column * Tile::WEIGHTS, M, group, first_block, end_block, first_row,
                (end_row - first_row - 1) % SCALE_BLOCK + 1};
        index += gridDim.x;
        return true;
    }
};

// D (G, M, N).
template <class D>
struct MatrixOfEachGroup {
    Matrix<D> first;
    int64_t group_stride;
    bool accumulate;

    __device__ __forceinline__ Matrix<D> of(int group) const {
        Matrix<D> matrix = first;
        matrix.first += group * group_stride * BYTES<D>;
        return matrix;
    }
};

// f32 is added to where it lies, in the L2 cache: nothing waits for what was there.
template <int SUMS>
__device__ __forceinline__ void store(const MatrixOfEachGroup<f32>& d, StagedRows& staged, const Work& work, int row,
                                      float (&sums)[SUMS]) {
    if (d.accumulate)
        add_to_rows(d.of(work.group), work.token + row, work.end_token, work.weight, sums);
    else
        store_rows(d.of(work.group), staged, work.token + row, work.end_token, work.weight, sums);
}

template <class D, int SUMS>
__device__ __forceinline__ void store(const MatrixOfEachGroup<D>& d, StagedRows& staged, const Work& work, int row,
                                      float (&sums)[SUMS]) {
    if (d.accumulate) add_rows(sums, d.of(work.group), work.token + row, work.end_token, work.weight);
    store_rows(d.of(work.group), staged, work.token + row, work.end_token, work.weight, sums);
}

}  // namespace zoo
