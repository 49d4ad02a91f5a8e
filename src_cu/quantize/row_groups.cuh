// Groups of rows, back to back in x: which rows of x a warp quantises, and where the results go.
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
// lanes do side by side. Rows of x after the last group lie at r + P(r), too: in the tail, as zeros. All other zeros are 128
// rows a group, and what M lacks to whole tiles; other CTAs write them (fill).
//
// How a row is quantised is in whole_blocks.cuh. A warp's share is PIECES pieces of x: where scales are plain, one after
// the other in a row, else below each other in as many rows.
//
// Loads return in the order in which they were made, also those that hit the cache. So what a warp must know of the
// groups is asked for before its rows of x, together with the last group's end, which it has to wait for. Then each lane
// adds up its groups, and holds no more than three numbers while x is on its way.
#pragma once

#include <climits>
#include <cstdint>

#include "common/dependent_launch.cuh"
#include "common/global_memory.cuh"
#include "common/variant.cuh"
#include "quantize/whole_blocks.cuh"

namespace zoo {

constexpr int GROUP_ALIGNMENT = 128;

// The groups of a call. `index` may be null: else row r of the result is row index[r] of x, or zeros for -1.
struct RowGroups {
    const int32_t* offsets;
    const int32_t* index;
    int M, count;

    // Rows of a padded q; and of blocked scales, in whole tiles.
    __device__ __forceinline__ int padded_q_rows() const { return M + GROUP_ALIGNMENT * count; }
    __device__ __forceinline__ int all_rows() const {
        return (padded_q_rows() + GROUP_ALIGNMENT - 1) / GROUP_ALIGNMENT * GROUP_ALIGNMENT;
    }

    __device__ __forceinline__ int begin(int group) const { return group == 0 ? 0 : load_int(offsets + group - 1); }
    __device__ __forceinline__ int end(int group) const { return load_int(offsets + group); }
};

// One group, or a lane's.
struct Group {
    int begin, end;

    __device__ __forceinline__ int padding() const { return (begin - end) & (GROUP_ALIGNMENT - 1); }
};

// Group `number`, if there is one; otherwise one that begins and ends after all rows.
__device__ __forceinline__ Group group_at(const RowGroups& groups, int number) {
    Group group = {INT_MAX, INT_MAX};
    if (number < groups.count) group = {groups.begin(number), groups.end(number)};
    return group;
}

// What lies before a row: the padding of the groups that end at or before it, and how many groups do.
struct Before {
    int padding, groups;
};

// A lane's part of that, for the share's first row; and whether a group ends at one of the `rows_more` rows after it.
struct PartBefore {
    Before before = {0, 0};
    bool ends_inside = false;

    __device__ __forceinline__ PartBefore(const RowGroups& groups, int lane, int first_row, uint32_t rows_more) {
        constexpr int BATCH = 4;  // loads that are on their way together
#pragma unroll 1
        for (int first = 0; first < groups.count; first += 32 * BATCH) {
            Group batch[BATCH];
            batch[0] = group_at(groups, first + lane);
#pragma unroll
            for (int i = 1; i < BATCH; i++) batch[i] = {INT_MAX, INT_MAX};
            if (first + 32 < groups.count) {
#pragma unroll
                for (int i = 1; i < BATCH; i++) batch[i] = group_at(groups, first + 32 * i + lane);
            }
#pragma unroll
            for (int i = 0; i < BATCH; i++) {
                if (batch[i].end <= first_row) before.padding += batch[i].padding(), before.groups++;
                ends_inside |= uint32_t(batch[i].end - first_row - 1) < rows_more;
            }
        }
    }
    __device__ __forceinline__ PartBefore() {}
};

// Adds what ends after the share's first row and at or before this lane's rows, one for each turn. By a whole warp.
template <int TURNS>
__device__ __forceinline__ void add_inside(const RowGroups& all, int lane, int first_row, uint32_t rows_more,
                                           const int (&rows)[TURNS], Before (&before)[TURNS]) {
#pragma unroll 1
    for (int first = 0; first < all.count; first += 32) {
        const Group own = group_at(all, first + lane);
        uint32_t inside = __ballot_sync(0xFFFFFFFF, uint32_t(own.end - first_row - 1) < rows_more);
#pragma unroll 1
        for (; inside != 0; inside &= inside - 1) {
            const int owner = __ffs(inside) - 1;
            const int end = __shfl_sync(0xFFFFFFFF, own.end, owner), padding = __shfl_sync(0xFFFFFFFF, own.padding(), owner);
#pragma unroll
            for (int t = 0; t < TURNS; t++)
                if (end <= rows[t]) before[t].padding += padding, before[t].groups++;
        }
    }
}

// Where scales lie, as the launch says: plain, or else what the format has besides.
template <class Format>
struct ScalePlaces {
    using Scale = typename Format::Scale;
    static constexpr bool BLOCKED = sizeof(Scale) == 1;  // if not plain; else mn_major
    static constexpr int BLOCK = Format::BLOCK;

    Scale* scales;
    int64_t stride;  // from row to row; blocked: of tiles
    bool plain;

    __device__ __forceinline__ bool blocked() const { return BLOCKED && !plain; }

    // Up to where scales are written, those of padding as well.
    __device__ __forceinline__ int columns_end(int K) const { return blocked() ? (K / BLOCK + 3) / 4 * (4 * BLOCK) : K; }

    __device__ __forceinline__ Scale* at(uint32_t row, uint32_t column) const {
        const uint32_t block = column / BLOCK;
        if constexpr (BLOCKED) {
            const uint32_t in_tiles = block / 4 * 512 + row % 32 * 16 + row % 128 / 32 * 4 + block % 4;
            return scales + (plain ? row : row / 128) * stride + (plain ? block : in_tiles);
        } else {
            return scales + (plain ? row : block) * stride + (plain ? block : row);
        }
    }
};

// Zeros: a group's padding, and as many rows of the tail as make 128 of it; by FILL_WARPS warps, each with some lines of
// blocked scales (4 rows) or as many rows that follow each other. They also say where the padded group lies.
template <bool PADDED>
constexpr int FILL_WARPS = PADDED ? 16 : 1;

template <bool PADDED, class Format>
__device__ __forceinline__ void fill_rows(const ScalePlaces<Format>& places, int first, int end, int q_end, int part, uint8_t* q,
                                          int K, uint32_t q_stride) {
    constexpr int ROWS = GROUP_ALIGNMENT / FILL_WARPS<PADDED>, LINES = ROWS / 4;  // of a tile
    const int lane = threadIdx.x % 32;
    const uint32_t zeros[4] = {0, 0, 0, 0};
#pragma unroll 1
    for (int tile = first / GROUP_ALIGNMENT * GROUP_ALIGNMENT; tile < end; tile += GROUP_ALIGNMENT) {
        auto row_of = [&](int i) {
            return tile + (places.blocked() ? part * LINES + i % LINES + i / LINES * 32 : part * ROWS + i);
        };
        if constexpr (PADDED) {
            const int bytes = K / Format::ELEMENTS_PER_BYTE;
#pragma unroll 1
            for (int i = 0; i < ROWS; i++) {
                if (row_of(i) < first || row_of(i) >= min(end, q_end)) continue;
                uint8_t* const row = q + uint64_t(row_of(i)) * q_stride;
#pragma unroll 1
                for (int at = lane * 16; at < bytes; at += 512) {
                    if (at + 16 <= bytes && q_stride % 16 == 0) {
                        store_16_bytes(row + at, zeros);
                    } else {
                        store_8_bytes(row + at, zeros);
                        if (at + 16 <= bytes) store_8_bytes(row + at + 8, zeros);
                    }
                }
            }
        }
        if (places.blocked()) {
            uint8_t* const lines = reinterpret_cast<uint8_t*>(places.at(tile, 0));
#pragma unroll 1
            for (int i = lane; i < places.stride / 512 * LINES; i += 32) {
                const int line = part * LINES + i % LINES;
                uint8_t* const bytes = lines + i / LINES * 512 + line * 16;
                if (tile + line >= first && tile + line + 96 < end) {
                    store_16_bytes(bytes, zeros);
                } else {
#pragma unroll
                    for (int row = 0; row < 4; row++)
                        if (tile + line + 32 * row >= first && tile + line + 32 * row < end)
                            *reinterpret_cast<uint32_t*>(bytes + 4 * row) = 0;
                }
            }
        } else if constexpr (PADDED) {
            const int blocks = (K + Format::BLOCK - 1) / Format::BLOCK;
#pragma unroll 1
            for (int i = lane; i < blocks * ROWS; i += 32) {
                const int row = row_of(i % ROWS);
                if (row >= first && row < min(end, q_end)) *places.at(row, i / ROWS * Format::BLOCK) = 0;
            }
        }
    }
}

template <bool PADDED, class Format>
__device__ __forceinline__ void fill(const RowGroups& groups, const ScalePlaces<Format>& places, uint32_t warp, uint8_t* q,
                                     int32_t* padded_starts, int32_t* padded_ends, int K, uint32_t q_stride) {
    const int lane = threadIdx.x % 32, number = warp / FILL_WARPS<PADDED>, part = warp % FILL_WARPS<PADDED>;
    if (number >= groups.count) return;

    int before = 0, all = 0;  // padding, of the groups before this one and of all
#pragma unroll 1
    for (int i = lane; i < groups.count; i += 32) {
        const int padding = group_at(groups, i).padding();
        all += padding;
        if (i < number) before += padding;
    }
    before = __reduce_add_sync(0xFFFFFFFF, before);
    all = __reduce_add_sync(0xFFFFFFFF, all);

    const Group group = group_at(groups, number);
    const int end = group.end + before, padded_end = end + group.padding();
    if (PADDED && part == 0 && lane == 0) {
        padded_starts[number] = group.begin + before;
        padded_ends[number] = padded_end;
    }
    const int tail = groups.M + all + GROUP_ALIGNMENT * number - before;
    const int tail_end = number == groups.count - 1 ? groups.all_rows() : tail + GROUP_ALIGNMENT - group.padding();
#pragma unroll 1
    for (int turn = 0; turn < 2; turn++)
        fill_rows<PADDED>(places, turn ? tail : end, turn ? tail_end : padded_end, groups.padded_q_rows(), part, q, K, q_stride);
}

// A warp's share of x. `entry_step`: from the tensor scale of a group to the next one's; 0: all groups have the first.
template <class X, bool PADDED, class Of, class Format>
__device__ __forceinline__ void quantize_group_rows(typename Of::Argument format_argument, int64_t entry_step,
                                                    const RowGroups& groups, const ScalePlaces<Format>& places, uint32_t share,
                                                    const uint8_t* x, uint8_t* q, int K, uint32_t x_stride, uint32_t q_stride) {
    using In = Input<X>;
    // As much as 16 bytes of q, or 64 of x.
    constexpr int COLUMNS = In::VALUES == 4 ? 16 : 16 * Format::ELEMENTS_PER_BYTE;
    using Lane = WholeBlocks<Format, Matrix<X>, COLUMNS>;
    constexpr int TURNS = Lane::TURNS, CELLS = Lane::CELLS, PIECES = Lane::PIECES;

    // From piece to piece.
    const int row_step = places.plain ? 0 : 1, column_step = places.plain ? Lane::PIECE : 0;
    const uint32_t rows_more = places.plain ? 0 : PIECES - 1;
    const uint32_t width = places.plain ? PIECES * Lane::PIECE : Lane::PIECE;
    const uint32_t across = (K + width - 1) / width;

    const int lane = threadIdx.x % 32;
    const int first_row = share / across * (rows_more + 1), first_column = share % across * width;
    if (first_row >= groups.M) return;
    const bool moves = PADDED || places.blocked();
    auto piece_of = [&](int turn) { return turn * Lane::TURN_PIECES + lane / Lane::PIECE_LANES; };
    auto column_of = [&](int turn) { return first_column + piece_of(turn) * column_step + lane % Lane::PIECE_LANES * COLUMNS; };
    int rows[TURNS], columns[TURNS], sources[TURNS];  // of x; negative: zeros
#pragma unroll
    for (int t = 0; t < TURNS; t++) {
        rows[t] = sources[t] = first_row + piece_of(t) * row_step;
        columns[t] = column_of(t);
        if (groups.index != nullptr && rows[t] < groups.M) sources[t] = load_int(groups.index + rows[t]);
    }
    int end_row = groups.end(groups.count - 1);
    PartBefore part;
    if (moves || entry_step != 0) part = PartBefore(groups, lane, first_row, rows_more);
    end_row = min(end_row, groups.M);
    if (first_row >= end_row && !moves) return;
    const int q_end_row = PADDED ? groups.M : end_row, scales_end_row = moves ? groups.M : end_row;

    uint4 data[TURNS * CELLS];
    int columns_left[TURNS];  // from this lane on; zero or negative where there is nothing
#pragma unroll
    for (int t = 0; t < TURNS; t++) {
        if (rows[t] >= end_row) sources[t] = -1;
        columns_left[t] = min(K - columns[t], COLUMNS);
        const uint8_t* source = x + (uint64_t(uint32_t(sources[t])) * x_stride + columns[t]) * Matrix<X>::BYTES;
#pragma unroll
        for (int c = 0; c < CELLS; c++) {
            data[t * CELLS + c] = make_uint4(0, 0, 0, 0);
            if (c * In::VALUES < columns_left[t] && sources[t] >= 0) data[t * CELLS + c] = load_16_bytes(source + c * 16);
        }
    }

    Before before[TURNS] = {};
    if (moves || entry_step != 0) {
        const Before first = {__reduce_add_sync(0xFFFFFFFF, part.before.padding),
                              __reduce_add_sync(0xFFFFFFFF, part.before.groups)};
#pragma unroll
        for (int t = 0; t < TURNS; t++) before[t] = first;
        if (__any_sync(0xFFFFFFFF, part.ends_inside)) add_inside(groups, lane, first_row, rows_more, rows, before);
    }

    // `storer`: which of the lanes that share a block this one is.
    const int storer = lane % Lane::BLOCK_LANES;
    auto store_scales = [&](uint32_t (&scales)[Lane::BLOCKS], int turn, int padding) {
        const int row = first_row + piece_of(turn) * row_step,
                  column = column_of(turn) - storer * COLUMNS;  // where the block begins
        const int scale_columns_left = min(places.columns_end(K) - column, COLUMNS);
        if (row < scales_end_row && scale_columns_left > 0)
            Lane::store_scales(scales, row < end_row ? min(K - column, COLUMNS) : 0, scale_columns_left,
                               places.at(row + (moves ? padding : 0), column));
    };
    // All of them know its scale. So where they can, they store those of one turn each, together.
    constexpr bool TOGETHER = TURNS == 2 && Lane::BLOCK_LANES >= TURNS;
    uint32_t scales[TURNS][Lane::BLOCKS];
#pragma unroll
    for (int t = 0; t < TURNS; t++) {
        Format format = Of::make(format_argument, min(before[t].groups, groups.count - 1) * entry_step);
        format.prepare();
        Lane blocks;
        blocks.find_scales(format, data + t * CELLS);
        const int left = rows[t] < q_end_row ? columns_left[t] : 0;
        if (TURNS > 1 || left > 0)  // as in whole_blocks.cuh
            blocks.store_elements(format, data + t * CELLS, left,
                                  q + uint64_t(uint32_t(rows[t] + (PADDED ? before[t].padding : 0))) * q_stride +
                                      columns[t] / Format::ELEMENTS_PER_BYTE,
                                  q_stride);
#pragma unroll
        for (int b = 0; b < Lane::BLOCKS; b++) scales[t][b] = blocks.scale[b];
        if (!TOGETHER && storer == 0) store_scales(scales[t], t, before[t].padding);
    }
    if constexpr (TOGETHER) {
        const bool second = storer == 1;
        uint32_t own[1] = {second ? scales[1][0] : scales[0][0]};
        const int difference = before[1].padding - before[0].padding;
        if (storer < TURNS) store_scales(own, storer, before[0].padding + (second ? difference : 0));
    }
}

// The kernel: CTAs that write zeros lie evenly among the first half of those that quantise, `fill_share` of 2^32 of them:
// so writing and reading mix, and no zeros are left to the end. Without a padded space there are none.
template <class X, bool PADDED, int THREADS, class Of, class Format>
__device__ __forceinline__ void quantize_row_groups(typename Of::Argument format_argument, int64_t entry_step,
                                                    const RowGroups& groups, const ScalePlaces<Format>& places,
                                                    int64_t fill_share, const uint8_t* x, uint8_t* q, int32_t* padded_starts,
                                                    int32_t* padded_ends, int K, uint32_t x_stride, uint32_t q_stride) {
    constexpr int WARPS = THREADS / 32;
    let_next_kernel_launch();
    const uint32_t warp = threadIdx.x / 32;
    const uint32_t fill_ctas = (groups.count * FILL_WARPS<PADDED> + WARPS - 1) / WARPS;
    const uint32_t fills = min(uint32_t(blockIdx.x * fill_share >> 32), fill_ctas);
    const uint32_t fills_then = min(uint32_t((blockIdx.x + 1) * fill_share >> 32), fill_ctas);
    wait_for_previous_kernel();
    if (fills < fills_then)
        fill<PADDED>(groups, places, fills * WARPS + warp, q, padded_starts, padded_ends, K, q_stride);
    else
        quantize_group_rows<X, PADDED, Of>(format_argument, entry_step, groups, places, (blockIdx.x - fills) * WARPS + warp, x, q,
                                           K, x_stride, q_stride);
}

}  // namespace zoo
