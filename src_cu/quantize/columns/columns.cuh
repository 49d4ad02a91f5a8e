// Quantises along M: q (K, M) and scales (K, M / BLOCK), stored transposed. The pipeline of all `cols` kernels, and the
// grouping of a single matrix. Included by kernels/cols*.cu and columns/both.cuh.
//
//   grouping     which rows a tile has, where results go     WholeMatrix, or one of groups/*_columns.cuh
//   TMA          x -> tile in shared memory                  columns/tile.cuh
//   all warps    tile -> elements and scales                 columns/column_results.cuh
//   TMA          elements -> q; threads store the scales     columns/column_results.cuh, scales/tile_scales.cuh
#pragma once

#include <cstdint>

#include "common/dependent_launch.cuh"
#include "common/mbarrier.cuh"
#include "common/tensor_copy.cuh"
#include "common/variant.cuh"
#include "quantize/columns/column_results.cuh"
#include "quantize/columns/tile.cuh"

namespace zoo {

// The grouping of a single matrix. Every grouping has these members.
template <class Format, class Tile>
struct WholeMatrix {
    using Scale = typename Format::Scale;
    static constexpr int BLOCK = Format::BLOCK;

    // BLANKS_TAIL: rows that follow a tile's last row must be zeroed. TMA fills rows outside x with zeros.
    // STORES_PADDING: elements of blank rows are stored.
    static constexpr bool BLANKS_TAIL = false, STORES_PADDING = false;

    Scale* scales;
    int64_t scales_stride, M;

    __device__ __forceinline__ TileAssignment<Scale> assign(Layout, uint32_t tile, uint64_t) const {
        const int row = tile * Tile::ROWS;
        const uint32_t blocks = (M + BLOCK - 1) / BLOCK;
        return {0, row, int(min(M - row, int64_t(Tile::ROWS))), row, {scales, scales_stride, blocks, uint32_t(row) / BLOCK}};
    }
    __device__ __forceinline__ int64_t tensor_scale_index(int) const { return 0; }
    template <class Cols>
    __device__ __forceinline__ void store(const Cols& cols, const TensorMap& map, uint8_t* q, int64_t q_stride, int column,
                                          int64_t K, const TileAssignment<Scale>& assignment) const {
        cols.store(map, q, q_stride, column, K, assignment.element, M);
    }
};

template <class X, class Format, class Tile>
struct ColumnsSharedMemory {
    Tile x;
    alignas(1024) ColumnResults<X, Format, Tile> cols;
    alignas(8) Barrier loaded;
    TileAssignment<typename Format::Scale> assignment;  // shared memory instead of registers
};

// Ends at the last byte: sizeof(Shared) is rounded up to a multiple of 1024.
template <class X, class Format, class Tile, class Shared = ColumnsSharedMemory<X, Format, Tile>>
constexpr int COLUMNS_SHARED_BYTES = offsetof(Shared, assignment) + sizeof(Shared::assignment);

// The kernel. `Groups` is WholeMatrix, ContiguousGroups, PaddedGroups or ExpertMatrices.
template <class X, class Traits, class Tile, class Groups, class XMap>
__device__ __forceinline__ void quantize_cols(Layout layout, typename Traits::Argument format_argument, const XMap& x,
                                              const TensorMap& q_map, uint8_t* q, int64_t q_stride, int64_t K, Groups groups) {
    using Format = typename Traits::Type;
    using Cols = ColumnResults<X, Format, Tile>;
    using Shared = ColumnsSharedMemory<X, Format, Tile>;
    extern __shared__ __align__(1024) uint8_t memory[];
    Shared& shared = *reinterpret_cast<Shared*>(memory);

    let_next_kernel_launch();
    const uint64_t columns = columns_end(layout, K);
    const TileCorner corner = tile_corner<Tile>(columns);
    if (threadIdx.x == 0) initialise(&shared.loaded, 1);
    __syncwarp();
    wait_for_previous_kernel();
    if (!Groups::BLANKS_TAIL || threadIdx.x < 32) {  // a search through groups needs a whole warp
        const auto found = groups.assign(layout, corner.row / Tile::ROWS, columns);
        if (threadIdx.x == 0) {
            if (found.rows > 0) shared.x.load(matrix_of(x, found.group), found.x_row, corner.column, &shared.loaded);
            shared.assignment = found;
        }
    }
    __syncthreads();
    const auto& assignment = shared.assignment;
    Format format = Traits::make(format_argument, groups.tensor_scale_index(assignment.group));
    format.prepare();
    if (assignment.rows > 0) {
        wait(&shared.loaded, 0);
        // Warps without rows idle, unless they store zeros or share a longer block with other warps.
        constexpr bool SKIPS_IDLE_WARPS = Groups::BLANKS_TAIL && !Groups::STORES_PADDING && Cols::BLOCK_WARPS == 1;
        if (Groups::BLANKS_TAIL && assignment.rows < Tile::ROWS) {
            const int busy_rows = (assignment.rows + Cols::LANE_ROWS - 1) / Cols::LANE_ROWS * Cols::LANE_ROWS;
            shared.x.blank(assignment.rows, SKIPS_IDLE_WARPS ? busy_rows : Tile::ROWS);
            __syncthreads();
        }
        if (!SKIPS_IDLE_WARPS || int(threadIdx.x) / 32 % Cols::WARPS_DOWN * Cols::LANE_ROWS < assignment.rows)
            shared.cols.quantize(format, layout, shared.x);
        if constexpr (Groups::STORES_PADDING && Format::ELEMENTS_PER_BYTE == 1) {
            if (assignment.rows % Format::BLOCK != 0) {
                __syncthreads();
                shared.cols.blank_end_of_block(assignment.rows);
            }
        }
    } else if (Groups::STORES_PADDING) {
        shared.cols.clear();
    }
    let_copies_see_shared_memory();
    __syncthreads();

    groups.store(shared.cols, q_map, q, q_stride, corner.column, K, assignment);
    shared.cols.store_scales(layout, assignment, corner.column, K);
    if (threadIdx.x == 0) wait_until_stores_have_read();
}

}  // namespace zoo
