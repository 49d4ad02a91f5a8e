// Quantises groups of rows along K and along M from one read of x, through an index or not. Included by
// kernels/both_groups.cu.
//
// An index lets rows of a tile be anywhere in x, so threads load them. A tile may have fewer than 128 rows, so threads store
// its results along K. With tensor maps (RowMaps) TMA loads tiles of a call without an index, and stores tiles of 128 rows.
// All else is as in columns/both.cuh. Tile t writes row t of the tiles of blocked scales along K.
#pragma once

#include <cstdint>
#include <type_traits>

#include "common/dependent_launch.cuh"
#include "common/global_memory.cuh"
#include "common/mbarrier.cuh"
#include "common/nothing.cuh"
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

// Tensor maps of x and of q_rows. `Loaded` is the mbarrier of the load of x.
struct RowMaps {
    using Loaded = Barrier;
    const TensorMap &x, &q_rows;
};
struct NoMaps {
    using Loaded = Nothing;
};

template <class X, class Format, class Tile, class Maps>
struct GroupedBothSharedMemory {
    alignas(1024) Tile x;
    alignas(1024) RowResults<X, Format, Tile> rows;
    alignas(1024) ColumnResults<X, Format, Tile> cols;
    [[no_unique_address]] alignas(8) Maps::Loaded loaded;
    TileAssignment<typename Format::Scale> assignment;
};

// Ends at the last byte: sizeof(Shared) is rounded up to a multiple of 1024.
template <class X, class Format, class Tile, class Maps, class Shared = GroupedBothSharedMemory<X, Format, Tile, Maps>>
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
template <class X, class Traits, class Tile, class Groups, class Maps>
__device__ __forceinline__ void quantize_grouped_both(Layout layout, typename Traits::Argument format_argument, const Maps& maps,
                                                      const GatheredRows& from, const RowTarget<typename Groups::Scale>& to,
                                                      const TensorMap& q_map, uint8_t* q_cols, int64_t q_cols_stride, int64_t K,
                                                      const Groups& groups) {
    using Format = typename Traits::Type;
    using Rows = RowResults<X, Format, Tile>;
    using Cols = ColumnResults<X, Format, Tile>;
    using Shared = GroupedBothSharedMemory<X, Format, Tile, Maps>;
    constexpr bool MAPPED = !std::is_same_v<Maps, NoMaps>;
    static_assert(Cols::BLOCK_WARPS > 1 || Rows::BLOCK_LANES == 1 && Tile::THREADS % Tile::ROWS == 0);
    constexpr int CHUNKS = Rows::ROW_BYTES / 16, CHUNK_COLUMNS = Rows::CHUNK_COLUMNS;
    extern __shared__ __align__(1024) uint8_t memory[];
    Shared& shared = *reinterpret_cast<Shared*>(memory);

    let_next_kernel_launch();
    const TileCorner corner = tile_corner<Tile>(K);
    if constexpr (MAPPED) {
        if (threadIdx.x == 0) initialise(&shared.loaded, 1);
        __syncwarp();
    }
    wait_for_previous_kernel();
    if (threadIdx.x < 32) {  // a search through groups needs a whole warp
        const auto found = groups.assign(layout, corner.row / Tile::ROWS, columns_end(layout, K));
        if (threadIdx.x == 0) shared.assignment = found;
        if constexpr (MAPPED)
            if (threadIdx.x == 0 && found.rows > 0 && !from.index)
                shared.x.load(maps.x, found.x_row, corner.column, &shared.loaded);
    }
    __syncthreads();
    const auto& assignment = shared.assignment;
    const int rows = assignment.rows, row = assignment.x_row;
    const bool blocked = layout == Layout::blocked;  // a tile without rows then stores scales of zero
    if (!Groups::STORES_PADDING && !blocked && rows == 0) return;
    if (rows > 0) {
        if (!MAPPED || from.index) load_rows(shared.x, from, row, rows, corner.column, K);
        if constexpr (MAPPED)
            if (!from.index) {
                wait(&shared.loaded, 0);
                shared.x.blank(rows, Tile::ROWS);
            }
        Format format = Traits::make(format_argument, groups.tensor_scale_index(assignment.group));
        format.prepare();
        __syncthreads();
        // A warp quantises 32 rows along K and the same rows along M. Without rows it skips both, unless it shares blocks or stores zeros.
        const bool idle = Cols::BLOCK_WARPS == 1 && int(threadIdx.x) / 32 % Cols::WARPS_DOWN * Cols::LANE_ROWS >= rows;
        if (!idle) shared.rows.quantize(format, layout, shared.x);
        if (!idle || Groups::STORES_PADDING) shared.cols.quantize(format, layout, shared.x);
        if (Groups::STORES_PADDING && Format::ELEMENTS_PER_BYTE == 1 && rows < Tile::ROWS) {
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
    const bool by_tma = MAPPED && rows == Tile::ROWS;
    if constexpr (MAPPED)
        if (by_tma) shared.rows.store(maps.q_rows, to.q, to.q_stride, {row, corner.column}, int64_t(row) + rows, K);
    const int64_t width = min(K - corner.column, int64_t(Tile::COLUMNS));
    const int across = width / CHUNK_COLUMNS;  // whole 16 bytes
    auto in_q = [&](int i) {
        return to.q + (row + i / CHUNKS) * to.q_stride + corner.column / Format::ELEMENTS_PER_BYTE + i % CHUNKS * 16;
    };
    auto in_tile = [&](int i) { return shared.rows.q + swizzled<Rows::ROW_BYTES>(i / CHUNKS, i % CHUNKS); };
#pragma unroll 1
    for (int i = threadIdx.x; i < (by_tma ? 0 : rows * CHUNKS); i += Tile::THREADS) {
        if (i % CHUNKS < across) *reinterpret_cast<uint4*>(in_q(i)) = *reinterpret_cast<const uint4*>(in_tile(i));
        if constexpr (Format::BLOCK < CHUNK_COLUMNS)  // half a chunk may be left
            if (i % CHUNKS == across && width % CHUNK_COLUMNS != 0)
                *reinterpret_cast<uint2*>(in_q(i)) = *reinterpret_cast<const uint2*>(in_tile(i));
    }
    const int scale_row = blocked ? corner.row : row;
    if (blocked || rows > 0)
        shared.rows.store_scales(layout, to.scales, to.scales_stride, {scale_row, corner.column}, int64_t(scale_row) + rows, K);
    if (threadIdx.x == 0) wait_until_stores_have_read();
}

}  // namespace zoo
