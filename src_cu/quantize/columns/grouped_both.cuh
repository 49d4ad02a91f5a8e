// Quantises groups of rows along K and along M from one read of x, through an index or not. Included by
// kernels/both_groups.cu.
//
// An index lets rows of a tile be anywhere in x, so threads load them. All else is as in columns/both.cuh, but for results
// along K: a tile may have fewer than 128 rows, so threads store them.
#pragma once

#include <cstdint>

#include "common/dependent_launch.cuh"
#include "common/global_memory.cuh"
#include "common/tensor_copy.cuh"
#include "common/variant.cuh"
#include "quantize/columns/both.cuh"
#include "quantize/columns/column_results.cuh"
#include "quantize/columns/tile.cuh"

namespace zoo {

// Rows of x, `stride` bytes apart. If `index` is not null, row r of the groups is row index[r] of x, or zeros if it is -1.
struct GatheredRows {
    const uint8_t* x;
    int64_t stride;
    const int* index;
};

// Loads rows [row, row + rows) of the groups. All other elements of the tile become zeros. Called by all threads.
template <class Tile>
__device__ __forceinline__ void load_rows(Tile& tile, const GatheredRows& from, int64_t row, int rows, int64_t column,
                                          int64_t K) {
    constexpr int ACROSS = 8 * Tile::SLABS, LOADS = Tile::ROWS * ACROSS / Tile::THREADS, CHUNK = 16 / Tile::X_BYTES;
    const int chunk = threadIdx.x % ACROSS, first = threadIdx.x / ACROSS;
    const bool exists = column + chunk * CHUNK < K;
    int64_t source[LOADS];
    uint4 data[LOADS];
#pragma unroll
    for (int i = 0; i < LOADS; i++) {
        const int r = first + i * (Tile::THREADS / ACROSS);
        source[i] = exists && r < rows ? from.index ? load_int(from.index + row + r) : row + r : -1;
    }
#pragma unroll
    for (int i = 0; i < LOADS; i++)
        data[i] = source[i] < 0 ? make_uint4(0, 0, 0, 0)
                                : load_16_bytes(from.x + source[i] * from.stride + column * Tile::X_BYTES + chunk * 16);
#pragma unroll
    for (int i = 0; i < LOADS; i++) {
        const int r = first + i * (Tile::THREADS / ACROSS);
        *reinterpret_cast<uint4*>(tile.slabs[chunk / 8] + swizzled<128>(r, chunk % 8)) = data[i];
    }
}

template <class X, class Format, class Tile>
struct GroupedBothSharedMemory {
    alignas(1024) Tile x;
    alignas(1024) RowResults<X, Format, Tile> rows;
    alignas(1024) ColumnResults<X, Format, Tile> cols;
    TileAssignment<typename Format::Scale> assignment;
};

// Ends at the last byte: sizeof(Shared) is rounded up to a multiple of 1024.
template <class X, class Format, class Tile, class Shared = GroupedBothSharedMemory<X, Format, Tile>>
constexpr int GROUPED_BOTH_SHARED_BYTES = offsetof(Shared, assignment) + sizeof(Shared::assignment);

// Elements and scales along K.
template <class Scale>
struct RowTarget {
    uint8_t* q;
    int64_t q_stride;
    Scale* scales;
    int64_t scales_stride;
};

// The kernel. `Groups` is ContiguousGroups or PaddedGroups.
template <class X, class Traits, class Tile, class Groups>
__device__ __forceinline__ void quantize_grouped_both(Layout layout, typename Traits::Argument format_argument,
                                                      const GatheredRows& from, const RowTarget<typename Groups::Scale>& to,
                                                      const TensorMap& q_map, uint8_t* q_cols, int64_t q_cols_stride, int64_t K,
                                                      const Groups& groups) {
    using Format = typename Traits::Type;
    using Rows = RowResults<X, Format, Tile>;
    using Shared = GroupedBothSharedMemory<X, Format, Tile>;
    static_assert(Rows::ROW_BYTES == 128 && Format::ELEMENTS_PER_BYTE == 1);
    extern __shared__ __align__(1024) uint8_t memory[];
    Shared& shared = *reinterpret_cast<Shared*>(memory);

    let_next_kernel_launch();
    const TileCorner corner = tile_corner<Tile>(K);
    wait_for_previous_kernel();
    if (threadIdx.x < 32) {  // a search through groups needs a whole warp
        const auto found = groups.assign(layout, corner.row / Tile::ROWS, K);
        if (threadIdx.x == 0) shared.assignment = found;
    }
    __syncthreads();
    const auto& assignment = shared.assignment;
    const int rows = assignment.rows, row = assignment.x_row;
    if (!Groups::STORES_PADDING && rows == 0) return;
    if (rows > 0) {
        load_rows(shared.x, from, row, rows, corner.column, K);
        Format format = Traits::make(format_argument, 0);
        format.prepare();
        __syncthreads();
        shared.rows.quantize(format, layout, shared.x);
        shared.cols.quantize(format, layout, shared.x);
        if (Groups::STORES_PADDING && rows < Tile::ROWS) {
            __syncthreads();
            shared.cols.blank_end_of_block(rows);
        }
    } else {
        shared.cols.clear();
    }
    let_copies_see_shared_memory();
    __syncthreads();

    groups.store(shared.cols, q_map, q_cols, q_cols_stride, corner.column, K, assignment);
    shared.cols.store_scales(layout, assignment, corner.column, K);
    const int across = min(K - corner.column, int64_t(Tile::COLUMNS)) / 16;  // whole 16 bytes
#pragma unroll 1
    for (int i = threadIdx.x; i < rows * 8; i += Tile::THREADS)
        if (i % 8 < across)
            *reinterpret_cast<uint4*>(to.q + (row + i / 8) * to.q_stride + corner.column + i % 8 * 16) =
                *reinterpret_cast<const uint4*>(shared.rows.q + swizzled<128>(i / 8, i % 8));
    if (rows > 0) shared.rows.store_scales(layout, to.scales, to.scales_stride, {row, corner.column}, int64_t(row) + rows, K);
    if (threadIdx.x == 0) wait_until_stores_have_read();
}

}  // namespace zoo
