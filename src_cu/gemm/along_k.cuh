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
//     copying thread     says how much of a block is the group's, and announces its bytes on `landed` in place of `full`
//     cutting warp       waits for `landed`, writes zeros if need be, and arrives at `full`
//
// The multiplying warps know nothing of it, and the loading ones are a ring of stages ahead. The cutting warp knows nothing of
// groups: 24 registers are all that the loading warps keep. The copy engine wants coordinates at multiples of 16 bytes, so groups
// begin at such rows.
#pragma once

#include <cstdint>

#include "common/mbarrier.cuh"
#include "common/tensor_copy.cuh"
#include "gemm/fp8b128_tile.cuh"
#include "gemm/operands.cuh"
#include "gemm/store_rows.cuh"
#include "gemm/tile_order.cuh"
#include "gemm/two_scales.cuh"

namespace zoo {

// Scales come as boxes, too: a block of K is a row of them. So nobody but the cutting warp arrives at `full`.
template <int TOKENS, int WEIGHTS, int STAGES, int WARPGROUPS, int HELD>
struct TileAlongK : Fp8b128Tile<TOKENS, WEIGHTS, STAGES, WARPGROUPS, false, false, 1> {
    static constexpr uint32_t STAGE_BYTES = (TOKENS + WEIGHTS) * (SCALE_BLOCK + 4), FULL_ARRIVALS = 1;
    static constexpr bool HUNGRY = true;
    static constexpr int LOADER_REGISTERS = WARPGROUPS == 2 ? 24 : 32, MATH_REGISTERS = WARPGROUPS == 2 ? 240 : 160;
    static constexpr int THREADS = (WARPGROUPS + 1) * 128, REGISTERS_AT_LAUNCH = 65536 / THREADS / 8 * 8;
    static_assert(LOADER_REGISTERS + WARPGROUPS * MATH_REGISTERS <= (WARPGROUPS + 1) * REGISTERS_AT_LAUNCH,
                  "a CTA that asks for more than it was started with waits for ever");
    static constexpr int COLUMNS_HELD = HELD;  // pairs of columns' scales that a second wave finds in registers
    static constexpr int COLUMNS_AHEAD = WARPGROUPS == 2 ? 4 : 2;  // pairs that come while the wgmmas run
    static constexpr int NO_MORE = -1;

    alignas(1024) Barrier landed[STAGES];
    int kept[STAGES];  // of a block's 128 of K; NO_MORE after the last block

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

    // By one thread: `row` of K is the first of a block, of which `rows` are the group's.
    __device__ __forceinline__ void load_block(Tile& tile, int stage, const Work& work, int block, int row, int rows) const {
        Barrier* landed = &tile.landed[stage];
        tile.kept[stage] = rows;
        arrive_expecting_bytes(landed, Tile::STAGE_BYTES);
        load_box(tile.weights[stage], b, row, work.weight, landed);
        load_box(tile.tokens[stage], a, row, work.token, landed);
        load_box(tile.token_scales[stage], a_scales, work.token, block, landed);
        load_box(tile.weight_scales[stage], b_scales, work.weight, block, landed);
    }
};

// By the loading warps: the first copies, the second cuts and passes on.
template <class Tile, class Order>
__device__ __forceinline__ void load(Tile& tile, Order order, const OperandsAlongK<Tile>& operands) {
    const int thread = threadIdx.x - Tile::MATH_THREADS;
    Ring<Tile::STAGES> ring;
    if (thread == 0) {
        for (Work work; order.next(work);) {
            int block = work.first_block;
            for (int row = work.first_row; row < work.end_row; row += SCALE_BLOCK, block++, ring.advance()) {
                tile.wait_until_empty(ring);
                operands.load_block(tile, ring.stage, work, block, row, min(SCALE_BLOCK, work.end_row - row));
            }
        }
        tile.wait_until_empty(ring);
        tile.kept[ring.stage] = Tile::NO_MORE;
        arrive(&tile.landed[ring.stage]);
    } else if (thread / 32 == 1) {
        for (;; ring.advance()) {
            wait(&tile.landed[ring.stage], ring.parity);
            const int kept = tile.kept[ring.stage];
            if (kept == Tile::NO_MORE) break;
            if (kept < SCALE_BLOCK) tile.cut(ring.stage, kept);
            __syncwarp();  // all lanes have read `kept`
            if (thread % 32 == 0) arrive(&tile.full[ring.stage]);
        }
    }
}

// Persistent CTAs; every group has a D of the same size, M x N. The copying thread and the multiplying warps walk along the
// groups, since a group's first block is known only from the sizes before it.
template <class Tile, int BAND>
struct OrderAlongK {
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
        work = {place.row * Tile::TOKENS, place.column * Tile::WEIGHTS, M, group, first_block, end_block, first_row, end_row};
        index += gridDim.x;
        return true;
    }
};

// D (G, M, N). Boxes of 16 rows x 128 bytes go there by the copy engine: a warp goes on to its next tile meanwhile. What f32 is
// added to is added by the L2 cache: nothing waits for what was there.
template <class D>
struct MatrixOfEachGroup {
    const TensorMap& map;  // of words of 4 bytes
    Matrix<D> first;
    int64_t group_stride;
    bool accumulate;

    __device__ __forceinline__ Matrix<D> of(int group) const {
        Matrix<D> matrix = first;
        matrix.first += group * group_stride * BYTES<D>;
        return matrix;
    }
};

// 16 rows x 128 bytes of a warp's sums, from column part * 128 / BYTES<D> on.
template <class D, int SUMS>
__device__ __forceinline__ void stage(StagedRows& staged, int part, const float (&sums)[SUMS], int lane) {
#pragma unroll
    for (int i = 0; i < 4; i++) {
        if constexpr (BYTES<D> == 2) {  // 16 rows x 16 columns: matrices 0 and 1 below each other, 2 and 3 right
            const float* eight = &sums[part * 32 + i * 8];
            const uint32_t matrices[4] = {encode_pair<D>(eight[0], eight[1]), encode_pair<D>(eight[2], eight[3]),
                                          encode_pair<D>(eight[4], eight[5]), encode_pair<D>(eight[6], eight[7])};
            store_matrices(staged.piece(lane % 16, 2 * i + lane / 16), matrices);
        } else {
            const float* four = &sums[part * 16 + i * 4];
#pragma unroll
            for (int below = 0; below < 2; below++) {
                uint8_t* piece = staged.piece(lane / 4 + 8 * below, 2 * i + lane % 4 / 2) + lane % 2 * 8;
                *reinterpret_cast<float2*>(piece) = make_float2(four[2 * below], four[2 * below + 1]);
            }
        }
    }
}

template <class D, int SUMS>
__device__ __forceinline__ void store(const MatrixOfEachGroup<D>& d, StagedRows& staged, const Work& work, int row,
                                      float (&sums)[SUMS]) {
    constexpr bool ADDED_BY_L2 = BYTES<D> == 4;
    if (d.accumulate && !ADDED_BY_L2) add_rows(sums, d.of(work.group), work.token + row, work.end_token, work.weight);
    const int thread = thread_index_anew(), lane = thread % 32;
    const int first_row = work.token + row + thread % WARPGROUP / 32 * STAGED_ROWS;
    const MatrixOfMap matrix{d.map, work.group};
#pragma unroll
    for (int part = 0; part < SUMS * 2 * BYTES<D> / 128; part++) {
        if (lane == 0) wait_until_stores_have_read();
        __syncwarp();
        stage<D>(staged, part, sums, lane);
        let_copies_see_shared_memory();
        __syncwarp();
        if (lane == 0) {
            const int column = work.weight * BYTES<D> / 4 + part * 32;
            if (d.accumulate && ADDED_BY_L2)
                add_box(matrix, staged.bytes, column, first_row);
            else
                store_box(matrix, staged.bytes, column, first_row);
        }
    }
}

// Not a loop: it would be too long for the compiler to unroll, and then index registers.
template <class D, int WAVES, int SUMS>
__device__ __forceinline__ void store_waves(const MatrixOfEachGroup<D>& d, StagedRows& staged, const Work& work, int row,
                                            float (&sums)[WAVES][SUMS]) {
    static_assert(WAVES <= 2);
    store(d, staged, work, row, sums[0]);
    if constexpr (WAVES == 2) store(d, staged, work, row + WGMMA_ROWS, sums[1]);
}

}  // namespace zoo
