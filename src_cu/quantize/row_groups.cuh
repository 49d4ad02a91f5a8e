// Groups of rows, back to back in x: which rows of x a share of rows.cuh reads, and where its results go.
//
// `offsets` (G) are the groups' cumulative end rows. Padded to multiples of 128, the groups lie in a space of
// round_up(M, 128) + 128 G rows, which is enough for any sizes; what no group reaches is the tail, whole tiles of 128
// rows. With P(r) the padding of all groups that end at or before row r of x:
//
//     row r of x                    lies at r + P(r)
//     the last tile of group g      ends at offsets[g] + P(offsets[g]), with the group's padding at its end
//     the tail                      begins at offsets[G-1] + P(offsets[G-1])
//
// So no warp searches a prefix sum for the group it belongs to: it starts from rows of x, and P is a masked sum, which
// lanes do side by side. Zeros are written by other blocks, a tile at a time (fill_tiles).
//
// Loads return in the order in which they were made, also those that hit the cache. So what a warp must know of the
// groups is asked for before its rows of x, and no further load follows them.
#pragma once

#include <climits>
#include <cstdint>

#include "common/dependent_launch.cuh"
#include "common/global_memory.cuh"
#include "common/variant.cuh"
#include "quantize/rows.cuh"
#include "quantize/scale_layout.cuh"

namespace zoo {

// The groups of a call. `index` may be null: else row r of the result is row index[r] of x, or zeros for -1.
struct RowGroups {
    const int32_t* offsets;
    const int32_t* index;
    int M, count;

    // Of the padded space: rows in all, and those that a padded q has.
    __device__ __forceinline__ int data_rows() const { return (M + 127) / 128 * 128; }
    __device__ __forceinline__ int padded_q_rows() const { return M + 128 * count; }

    __device__ __forceinline__ int begin(int group) const { return group == 0 ? 0 : offsets[group - 1]; }
};

constexpr int GROUP_ALIGNMENT = 128;

__device__ __forceinline__ int padding_of(int begin, int end) { return (begin - end) & (GROUP_ALIGNMENT - 1); }

// visit(group, begin, end) by one lane for every group, all lanes of the warp side by side. Their loads are in flight
// together, up to 4 a lane: offsets have just been written by another kernel and may be far.
template <class Visit>
__device__ __forceinline__ void visit_groups(const RowGroups& groups, int lane, Visit visit) {
    constexpr int BATCH = 4;
#pragma unroll 1
    for (int first = 0; first < groups.count; first += 32 * BATCH) {
        int begin[BATCH], end[BATCH];
#pragma unroll
        for (int i = 0; i < BATCH; i++) {
            const int group = first + 32 * i + lane;
            begin[i] = end[i] = INT_MAX;
            if (group < groups.count) end[i] = groups.offsets[group];
            if (group < groups.count) begin[i] = groups.begin(group);
        }
#pragma unroll
        for (int i = 0; i < BATCH; i++)
            if (first + 32 * i < groups.count) visit(first + 32 * i + lane, begin[i], end[i]);
    }
}

// For the rows.cuh skeleton: the rows of x, where they lie in groups. Every lane knows the place of one piece; what is
// asked of a piece is asked of the lane that knows. PADDED: q has the padded space, otherwise x's rows.
//
// Every warp finds its groups by itself, 32 at a time, while x is on its way: a barrier costs more than the work it saves.
template <class Scales, int LOADS, bool PADDED, bool SCALES_PADDED>
class GroupedRows {
    static constexpr int ROWS = Scales::ROWS == 1 ? 1 : LOADS;  // of a share; pieces of one row are alike
    static constexpr int BATCH = 8;  // ends a lane holds

    RowGroups groups;
    bool find_groups;      // whether the format differs from group to group
    int first, row;        // the share's first row and this lane's
    int last;              // the end of the last group
    int ends[BATCH];       // of groups lane, lane + 32, ...; of those that do not exist INT_MAX
    int place;             // where this lane's row goes: in the padded space if SCALES_PADDED, else in x
    int sources[ROWS];     // the pieces' rows of x; negative: none, the row is zeros
    uint32_t data;         // a bit for each piece: whether its row belongs to a group

    static __device__ __forceinline__ int lane() { return threadIdx.x % 32; }
    static __device__ __forceinline__ int own_piece() { return ROWS == 1 ? 0 : lane() % LOADS; }
    static __device__ __forceinline__ int of_piece(int lanes, int piece) {
        return ROWS == 1 ? lanes : __shfl_sync(0xFFFFFFFF, lanes, piece);
    }
    __device__ __forceinline__ bool finds() const { return SCALES_PADDED || find_groups; }

    __device__ __forceinline__ void ask(int from) {
#pragma unroll
        for (int i = 0; i < BATCH; i++) ends[i] = INT_MAX;
        if (from + lane() < groups.count) ends[0] = groups.offsets[from + lane()];
        if (from + 32 < groups.count) {
#pragma unroll
            for (int i = 1; i < BATCH; i++)
                if (from + 32 * i + lane() < groups.count) ends[i] = groups.offsets[from + 32 * i + lane()];
        }
    }

    // The place of this lane's row; and its group, if the format asks.
    __device__ __forceinline__ int find() {
        const int last_row = first + Scales::row(LOADS - 1);
        int group = 0, padding = 0, begin = 0;  // padding: of the groups this lane holds that end before the share
#pragma unroll 1
        for (int from = 0; from < groups.count; from += 32 * BATCH) {
            if (from > 0) ask(from);
#pragma unroll
            for (int i = 0; i < BATCH; i++) {
                if (i > 0 && from + 32 * i >= groups.count) break;
                const int end = ends[i];
                const int before = __shfl_up_sync(0xFFFFFFFF, end, 1);
                const int own_padding = padding_of(lane() == 0 ? begin : before, end);
                begin = __shfl_sync(0xFFFFFFFF, end, 31);
                if (end <= first) padding += own_padding;
                if (find_groups) group += __popc(__ballot_sync(0xFFFFFFFF, end <= first));
                // Groups that end inside the share are before some of its rows only.
                if (ROWS > 1 && __any_sync(0xFFFFFFFF, end > first && end <= last_row)) {
#pragma unroll
                    for (int j = 1; j < ROWS; j++) {
                        const bool ends_inside = end > first && end <= first + Scales::row(j);
                        const int more = __reduce_add_sync(0xFFFFFFFF, ends_inside ? own_padding : 0);
                        const int groups_more = find_groups ? __popc(__ballot_sync(0xFFFFFFFF, ends_inside)) : 0;
                        if (j == own_piece()) place += more, group += groups_more;
                    }
                }
            }
            if (begin > last_row) break;  // all further groups end after the share
        }
        place = SCALES_PADDED ? place + __reduce_add_sync(0xFFFFFFFF, padding) : row;
        return min(group, groups.count - 1);  // rows after the last group may take any
    }

  public:
    __device__ __forceinline__ GroupedRows(const RowGroups& groups, bool find_groups)
        : groups(groups), find_groups(find_groups) {}

    __device__ __forceinline__ uint64_t shares_end() const { return groups.M; }

    __device__ __forceinline__ uint64_t end() const { return UINT64_MAX; }

    __device__ __forceinline__ void enter(uint64_t share_row, int) {
        first = share_row;
        row = place = first + Scales::row(own_piece());
        if (finds()) ask(0);
        int source = row;
        if (groups.index != nullptr && row < groups.M) source = groups.index[row];
        last = min(groups.offsets[groups.count - 1], groups.M);
        if (row >= last) source = -1;
        data = __ballot_sync(0xFFFFFFFF, row < last);
#pragma unroll
        for (int i = 0; i < ROWS; i++) sources[i] = of_piece(source, i);
    }

    // All is after the last group.
    __device__ __forceinline__ bool is_empty() const { return data == 0; }

    __device__ __forceinline__ bool is_inside(int piece) const { return data >> piece & 1; }
    __device__ __forceinline__ bool is_read(int piece) const { return sources[ROWS == 1 ? 0 : piece] >= 0; }

    __device__ __forceinline__ uint64_t x_origin() const { return 0; }
    __device__ __forceinline__ uint64_t q_origin() const { return 0; }
    __device__ __forceinline__ uint64_t x_row(int piece) const { return uint32_t(sources[ROWS == 1 ? 0 : piece]); }
    __device__ __forceinline__ uint64_t q_row(int piece) const { return uint32_t(of_piece(PADDED ? place : row, piece)); }

    __device__ __forceinline__ uint64_t scale_row(int piece) const { return uint32_t(of_piece(place, piece)); }
    __device__ __forceinline__ bool has_scale(int piece) const { return is_inside(piece); }
    __device__ __forceinline__ bool is_padding(uint64_t, int) const { return false; }

    template <class Format>
    __device__ __forceinline__ void prepare(Format& format) {
        prepare_for_group(format, finds() ? find() : 0);
    }
    template <class Format>
    __device__ __forceinline__ decltype(auto) format_of(const Format& format, int piece) const {
        return format_of_lane(format, ROWS == 1 ? lane() : piece);
    }
};

// A format that is the same for all groups. nvfp4_groups.cuh has one that is not.
template <class Format>
__device__ __forceinline__ void prepare_for_group(Format& format, int) {
    format.prepare();
}
template <class Format>
__device__ __forceinline__ const Format& format_of_lane(const Format& format, int) {
    return format;
}

// Zeros for the last tile of every group, from the group's end on, and for the tail: a warp FILL_ROWS rows of a tile, or
// for blocked scales as many fourths of its lines of 4 rows. There are as many tiles of the tail as can be: those of
// every group and of M. The warps of a group's tile also say where the padded group lies.
template <bool PADDED>
constexpr int FILL_ROWS = PADDED ? 8 : 128;

__device__ __forceinline__ int fill_tiles(const RowGroups& groups) {
    return 2 * groups.count + groups.data_rows() / GROUP_ALIGNMENT;
}

template <class Scales, bool PADDED, int ELEMENTS_PER_BYTE, int BLOCK, class Scale>
__device__ __forceinline__ void fill_tile(const RowGroups& groups, uint32_t share, uint8_t* q, Scale* scales,
                                          int32_t* padded_starts, int32_t* padded_ends, int64_t K, int64_t q_stride,
                                          int64_t scales_stride) {
    constexpr int ROWS = FILL_ROWS<PADDED>, SHARES = GROUP_ALIGNMENT / ROWS;
    const int lane = threadIdx.x % 32;
    const int number = share / SHARES, part = share % SHARES;
    if (number >= fill_tiles(groups)) return;

    int before = 0, all = 0;  // padding, of the groups before the number and of all
    visit_groups(groups, lane, [&](int group, int begin, int end) {
        const int padding = group < groups.count ? padding_of(begin, end) : 0;
        all += padding;
        if (group < number) before += padding;
    });
    before = __reduce_add_sync(0xFFFFFFFF, before);
    all = __reduce_add_sync(0xFFFFFFFF, all);

    int tile, filled = 0;  // the tile's first row, and how many of its rows are a group's
    if (number < groups.count) {
        const int begin = groups.begin(number), end = groups.offsets[number];
        const int padded_end = end + before + padding_of(begin, end);
        if (padded_starts != nullptr && part == 0 && lane == 0) {
            padded_starts[number] = begin + before;
            padded_ends[number] = padded_end;
        }
        tile = padded_end - GROUP_ALIGNMENT;
        filled = GROUP_ALIGNMENT - padding_of(begin, end);
        if (filled == GROUP_ALIGNMENT) return;
    } else {
        tile = groups.data_rows() + GROUP_ALIGNMENT * (2 * groups.count - 1 - number);
        if (tile < groups.offsets[groups.count - 1] + all) return;
    }

    const int rows_end = groups.padded_q_rows() - tile;
    const uint32_t zeros[4] = {0, 0, 0, 0};
    if constexpr (PADDED) {
        const int64_t bytes = K / ELEMENTS_PER_BYTE;
#pragma unroll 1
        for (int j = max(part * ROWS, filled); j < min(part * ROWS + ROWS, rows_end); j++) {
            uint8_t* const row = q + (tile + int64_t(j)) * q_stride;
#pragma unroll 1
            for (int64_t at = lane * 16; at < bytes; at += 512) {
                if (at + 16 <= bytes && q_stride % 16 == 0) {
                    store_16_bytes(row + at, zeros);
                } else {
                    store_8_bytes(row + at, zeros);
                    if (at + 16 <= bytes) store_8_bytes(row + at + 8, zeros);
                }
            }
        }
    }
    if constexpr (Scales::ROWS == GROUP_ALIGNMENT) {
        constexpr int LINES = ROWS / 4;
        uint8_t* const lines = scales + tile / GROUP_ALIGNMENT * scales_stride;
#pragma unroll 1
        for (int64_t i = lane; i < scales_stride / 512 * LINES; i += 32) {
            const int line = part * LINES + i % LINES;
            uint8_t* const bytes = lines + i / LINES * 512 + line * 16;
            if (line >= filled) {
                store_16_bytes(bytes, zeros);
            } else {
#pragma unroll
                for (int row = 1; row < 4; row++)
                    if (line + 32 * row >= filled) *reinterpret_cast<uint32_t*>(bytes + 4 * row) = 0;
            }
        }
    } else {
        const int64_t blocks = (K + BLOCK - 1) / BLOCK;
#pragma unroll 1
        for (int64_t i = lane; i < blocks * ROWS; i += 32) {
            const int j = part * ROWS + i % ROWS;
            if (j >= filled && j < rows_end) Scales::store(scales, scales_stride, tile + j, i / ROWS * BLOCK, K, 0);
        }
    }
}

// The kernel: the first blocks write zeros, all others quantise. Without a padded space there are only the others.
template <class X, Layout LAYOUT, bool PADDED, int THREADS, class Format>
__device__ __forceinline__ void quantize_row_groups(Format format, const RowGroups& groups, bool find_groups,
                                                    const uint8_t* x, uint8_t* q, uint8_t* scales,
                                                    int32_t* padded_starts, int32_t* padded_ends, int64_t K,
                                                    uint32_t x_stride, uint32_t q_stride, int64_t scales_stride) {
    constexpr int LOADS = 32 / Input<X>::VALUES;
    constexpr bool SCALES_PADDED = PADDED || LAYOUT == Layout::blocked;
    using Scales = ScalesOf<X, LAYOUT, LOADS, Format>;
    using Scale = typename Format::Scale;

    let_next_kernel_launch();
    constexpr int FILL_SHARES = GROUP_ALIGNMENT / FILL_ROWS<PADDED>, WARPS = THREADS / 32;
    const uint32_t fill_blocks = SCALES_PADDED ? (fill_tiles(groups) * FILL_SHARES + WARPS - 1) / WARPS : 0;
    if (blockIdx.x < fill_blocks) {
        wait_for_previous_kernel();
        fill_tile<Scales, PADDED, Format::ELEMENTS_PER_BYTE, Format::BLOCK>(
            groups, blockIdx.x * WARPS + threadIdx.x / 32, q, reinterpret_cast<Scale*>(scales), padded_starts,
            padded_ends, K, q_stride, scales_stride);
    } else {
        quantize_share<X, Scales, THREADS, LOADS>(
            format, GroupedRows<Scales, LOADS, PADDED, SCALES_PADDED>(groups, find_groups),
            blockIdx.x - fill_blocks, x, q, scales, K, x_stride, q_stride, scales_stride);
    }
}

}  // namespace zoo
