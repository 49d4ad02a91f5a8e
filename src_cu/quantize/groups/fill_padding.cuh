// Writes the zeros of grouped rows: the padding of the groups and the tail (groups/row_groups.cuh). Also stores where
// padded groups begin and end. Included by groups/grouped_rows.cuh.
//
// Each group zeroes 128 rows: its own padding, and the rest of the 128 rows in the tail. FILL_WARPS warps share these rows.
//
//   rows of the result    | group 0 |padding| group 1  |padding| ... | tail of group 0 | tail of group 1 | ... |
//   zeroed for group 0              |-------|                        |-----------------|
//   zeroed for group 1                                 |-------|                       |-----------------|
#pragma once

#include <cstdint>

#include "common/global_memory.cuh"
#include "quantize/groups/row_groups.cuh"
#include "quantize/scales/group_scales.cuh"

namespace zoo {

// Without padded rows of q only blocked scales are zeroed.
template <bool PADDED>
constexpr int FILL_WARPS = PADDED ? 16 : 1;

// Zeroes rows [first, end) of q and of the scales. Part `part` of a tile of 128 rows is consecutive rows, or, if scales are
// blocked, lines of scales (4 rows each). Rows of q end at q_end.
template <bool PADDED, class Format>
__device__ __forceinline__ void fill_row_range(const GroupScales<Format>& scales_of_groups, int first, int end, int q_end,
                                               int part, uint8_t* q, int K, uint32_t q_stride) {
    constexpr int ROWS = GROUP_ALIGNMENT / FILL_WARPS<PADDED>, LINES = ROWS / 4;  // of a tile of 128 rows
    const int lane = threadIdx.x % 32;
    const uint32_t zeros[4] = {0, 0, 0, 0};
#pragma unroll 1
    for (int tile = first / GROUP_ALIGNMENT * GROUP_ALIGNMENT; tile < end; tile += GROUP_ALIGNMENT) {
        auto row_of = [&](int i) {
            return tile + (scales_of_groups.blocked() ? part * LINES + i % LINES + i / LINES * 32 : part * ROWS + i);
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
        if (scales_of_groups.blocked()) {
            uint8_t* const lines = reinterpret_cast<uint8_t*>(scales_of_groups.at(tile, 0));
#pragma unroll 1
            for (int i = lane; i < scales_of_groups.stride / 512 * LINES; i += 32) {
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
                if (row >= first && row < min(end, q_end)) *scales_of_groups.at(row, i / ROWS * Format::BLOCK) = 0;
            }
        }
    }
}

// Zeroes the rows of one group, and stores its bounds.
template <bool PADDED, class Format>
__device__ __forceinline__ void fill_padding(const RowGroups& groups, const GroupScales<Format>& scales_of_groups, uint32_t warp,
                                             uint8_t* q, int32_t* padded_starts, int32_t* padded_ends, int K, uint32_t q_stride) {
    const int lane = threadIdx.x % 32, number = warp / FILL_WARPS<PADDED>, part = warp % FILL_WARPS<PADDED>;
    if (number >= groups.count) return;

    int before = 0, all = 0;  // padding of the groups before this group, and of all groups
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
    for (int is_tail = 0; is_tail < 2; is_tail++)
        fill_row_range<PADDED>(scales_of_groups, is_tail ? tail : end, is_tail ? tail_end : padded_end, groups.padded_q_rows(),
                               part, q, K, q_stride);
}

}  // namespace zoo
