// SwiGLU's backward with quantisation, of groups of rows: the pipeline, and how a tile is quantised along M. Included by
// kernels/swiglu_backward.cu.
//
// A CTA reads 128 rows of a group and 128 gates with their ups, once:
//
//   TMA            d_act, h -> slabs 0 .. 5 in shared memory
//   all warps      gradients in bf16 -> slabs 0 .. 5; d_h along its rows -> global memory      backward/gradient_rows.cuh
//   all warps      two slabs at a time along M -> elements, transposed, in slabs that are free
//   TMA, threads   elements -> q_act or q_cols; threads store the scales                       groups/*_columns.cuh
//
//   slab      0    1    2    3    4    5    6
//   loaded    d_act     h                   free
//   part 0    act       d_h                 act^T         part 0: slabs 0 and 1 -> 6
//   part 1    d_h^T     d_h                 act^T         part 1: slabs 2 and 3 -> 0
//   part 2    d_h^T     d_h^T     d_h       act^T         part 2: slabs 4 and 5 -> 2
//
// No slab is written while TMA reads it, and two CTAs fit into the shared memory of an SM.
#pragma once

#include <cstdint>

#include "common/dependent_launch.cuh"
#include "common/mbarrier.cuh"
#include "common/tensor_copy.cuh"
#include "common/variant.cuh"
#include "quantize/backward/gradient_rows.cuh"
#include "quantize/columns/column_results.cuh"
#include "quantize/columns/tile.cuh"

namespace zoo {

using GradientTile = Tile<bf16, 128, 128>;  // two slabs

template <class Scale>
struct BackwardSharedMemory {
    alignas(1024) uint8_t slabs[7][SLAB_BYTES];
    alignas(8) Barrier loaded;
    TileAssignment<Scale> assignment;
};

// Ends at the last byte: sizeof is rounded up to a multiple of 1024.
template <class Scale, class Shared = BackwardSharedMemory<Scale>>
constexpr int BACKWARD_SHARED_BYTES = offsetof(Shared, assignment) + sizeof(Shared::assignment);

// Elements and scales along M. `block_step` and `row_step` count scales.
template <class Scale>
struct ColumnTarget {
    const TensorMap& map;
    uint8_t* q;
    int64_t q_stride;
    Scale* scales;
    int64_t row_step, block_step;
};

// Chooses member by member: a choice of structures would put them into local memory.
template <class Scale>
__device__ __forceinline__ ColumnTarget<Scale> choose(bool one, const ColumnTarget<Scale>& a, const ColumnTarget<Scale>& b) {
    return {one ? a.map : b.map,           one ? a.q : b.q,
            one ? a.q_stride : b.q_stride, one ? a.scales : b.scales,
            one ? a.row_step : b.row_step, one ? a.block_step : b.block_step};
}

// Quantises two slabs along M: 128 rows are one block. A warp has 32 rows of a slab, a lane two columns of these rows.
// `store_scale(column, scale)` stores the scale of a column. Only `q` of the results is in memory. It first holds
// the magnitudes that warps exchange.
template <class Results, class Format, class StoreScale>
__device__ __forceinline__ void quantize_slabs(const Format& format, const uint8_t (*slabs)[SLAB_BYTES], Results& results,
                                               StoreScale store_scale) {
    using In = Input<bf16>;
    constexpr int STEP = Results::STEP, STEPS = 32 / STEP;
    const int lane = threadIdx.x % 32, down = threadIdx.x / 32 % 4, slab = threadIdx.x / 128;
    uint32_t data[STEPS][STEP], largest = 0;  // largest: of each column separately
#pragma unroll
    for (int s = 0; s < STEPS; s++) {
        Results::load(slabs[slab], down * 32 + s * STEP, data[s]);
#pragma unroll
        for (int r = 0; r < STEP; r += 4)
            largest = In::larger(largest, In::largest(make_uint4(data[s][r], data[s][r + 1], data[s][r + 2], data[s][r + 3])));
    }
    auto magnitudes = reinterpret_cast<uint32_t (*)[64]>(results.q[0]);
    magnitudes[down][slab * 32 + lane] = largest;
    __syncthreads();
#pragma unroll
    for (int w = 0; w < 4; w++) largest = In::larger(largest, magnitudes[w][slab * 32 + lane]);
    __syncthreads();

    const int first_column = slab * 64 + lane * 2;
    float multiplier[2];
#pragma unroll
    for (int c = 0; c < 2; c++) {
        const uint32_t scale = format.scale_of(In::magnitude_to_float(In::magnitude_at(largest, c)));
        if (down == 0) store_scale(first_column + c, scale);
        multiplier[c] = format.multiplier(scale);
    }
#pragma unroll
    for (int s = 0; s < STEPS; s++) {
        uint32_t words[2][STEP / 4];
        Results::encode(format, data[s], multiplier, words);
#pragma unroll
        for (int c = 0; c < 2; c++)
            *reinterpret_cast<uint4*>(results.q[0] + swizzled<128>(first_column + c, down * 2 + s)) =
                make_uint4(words[c][0], words[c][1], words[c][2], words[c][3]);
    }
}

// The kernel. `Groups` is ContiguousGroups or PaddedGroups; its scales are those of `gradients`.
template <class Traits, class Groups>
__device__ __forceinline__ void swiglu_backward(typename Traits::Argument format_argument, const SwigluGradient& gradient,
                                                const TensorMap& d_act, const TensorMap& h, int64_t K, bool interleaved,
                                                const RowEntries& entries, const GradientRows<typename Groups::Scale>& rows,
                                                const ColumnTarget<typename Groups::Scale>& gradients,
                                                const ColumnTarget<typename Groups::Scale>& activations, const Groups& groups) {
    using Format = typename Traits::Type;
    using Scale = typename Groups::Scale;
    using Results = ColumnResults<bf16, Format, GradientTile>;
    using Shared = BackwardSharedMemory<Scale>;
    static_assert(Results::BLOCK == 128 && Results::BOXES == 1 && Results::STEP == 16 && offsetof(Results, q) == 0);
    extern __shared__ __align__(1024) uint8_t memory[];
    Shared& shared = *reinterpret_cast<Shared*>(memory);

    let_next_kernel_launch();
    const TileCorner corner = tile_corner<GradientTile>(K);
    const PairColumns columns = {int(K), corner.column, interleaved};
    if (threadIdx.x == 0) initialise(&shared.loaded, 1);
    __syncwarp();
    wait_for_previous_kernel();
    if (threadIdx.x < 32) {  // a search through groups needs a whole warp
        const auto found = groups.assign(Layout::plain, corner.row / GradientTile::ROWS, K);
        if (threadIdx.x == 0) {
            if (found.rows > 0) {
                arrive_expecting_bytes(&shared.loaded, 6 * SLAB_BYTES);
#pragma unroll
                for (int s = 0; s < 2; s++)
                    load_box(shared.slabs[s], d_act, 2 * (corner.column + 64 * s), found.x_row, &shared.loaded);
#pragma unroll
                for (int s = 0; s < 4; s++)
                    load_box(shared.slabs[2 + s], h, 2 * (columns.block_column(s / 2) + s % 2 * 64), found.x_row, &shared.loaded);
            }
            shared.assignment = found;
        }
    }
    __syncthreads();
    const auto& assignment = shared.assignment;
    if (!Groups::STORES_PADDING && assignment.rows == 0) return;
    Format format = Traits::make(format_argument, 0);
    format.prepare();
    if (assignment.rows > 0) {
        wait(&shared.loaded, 0);
        differentiate(format, gradient, columns, shared.slabs, assignment.x_row, assignment.rows, entries, rows);
    }
    __syncthreads();

    const int64_t scale_block = assignment.target.scales - gradients.scales + assignment.target.block;
#pragma unroll 1
    for (int part = 0; part < 3; part++) {
        const bool of_act = part == 0;
        if (!of_act && !columns.has_block(part - 1)) break;
        const ColumnTarget<Scale> target = choose(of_act, activations, gradients);
        const int64_t first = of_act ? corner.column : columns.block_column(part - 1), end = of_act ? K : 2 * K;
        auto store_scale = [&](int column, uint32_t scale) {
            if (first + column < end) target.scales[(first + column) * target.row_step + scale_block * target.block_step] = scale;
        };
        Results& results = *reinterpret_cast<Results*>(shared.slabs[of_act ? 6 : 2 * part - 2]);
        if (assignment.rows > 0) {
            quantize_slabs(format, shared.slabs + 2 * part, results, store_scale);
            if (Groups::STORES_PADDING && assignment.rows < GradientTile::ROWS) {
                __syncthreads();
                results.blank_end_of_block(assignment.rows);
            }
        } else {
            results.clear();
            if (threadIdx.x < GradientTile::COLUMNS) store_scale(threadIdx.x, 0);
        }
        let_copies_see_shared_memory();
        __syncthreads();
        groups.store(results, target.map, target.q, target.q_stride, int(first), end, assignment);
    }
    if (threadIdx.x == 0) wait_until_stores_have_read();
}

}  // namespace zoo
