// The groupings of the direction `cols`: groups of rows of x lie along M, as weight gradients contract them. Blocks start
// anew with every group, so tiles do: a group of n rows is ceil(n / ROWS) tiles, and rows that follow its end are blank.
//
//   x, rows      |  group 0   |   group 1    |g2|      rows after the last group       (offsets on the device)
//   tiles        | 0 | 1 | 2  | 3  | 4  | 5  |6 |      further tiles are of «the rest»
//
// How many tiles there are only the device knows: the grid is large enough for any sizes. Every warp finds its CTA's group
// by itself, 32 groups at a time.
#pragma once

#include <cstdint>

#include "common/variant.cuh"
#include "quantize/cols.cuh"

namespace zoo {

// Rows [start, end), and how many tiles and scales (of a row of q) all groups before it have. Past the last group: the
// rest, of no rows.
struct TileGroup {
    int group, start, end;
    uint32_t tiles, blocks;
};

// Inclusive sums over the lanes of a warp.
__device__ __forceinline__ uint32_t warp_sums(uint32_t value, int lane) {
#pragma unroll
    for (int distance = 1; distance < 32; distance *= 2) {
        const uint32_t below = __shfl_up_sync(0xFFFFFFFF, value, distance);
        if (lane >= distance) value += below;
    }
    return value;
}

// The group of a tile; by whole warps. blocks_of(rows): how many scales a group has.
template <int ROWS, class BlocksOf>
__device__ __forceinline__ TileGroup group_of_tile(const int* offsets, int groups, uint32_t tile, BlocksOf blocks_of) {
    const int lane = threadIdx.x % 32;
    TileGroup found = {0, 0, 0, 0, 0};
#pragma unroll 1
    for (; found.group < groups; found.group += 32) {
        const int end = offsets[min(found.group + lane, groups - 1)];
        const int before = __shfl_up_sync(0xFFFFFFFF, end, 1);
        const int start = lane == 0 ? found.start : before;
        const uint32_t tiles = (end - start + ROWS - 1) / ROWS, blocks = blocks_of(end - start);
        const uint32_t tiles_so_far = warp_sums(tiles, lane), blocks_so_far = warp_sums(blocks, lane);
        const uint32_t past = __ballot_sync(0xFFFFFFFF, found.tiles + tiles_so_far > tile);
        const int owner = past ? __ffs(past) - 1 : 31;
        auto of_owner = [&](uint32_t value) { return __shfl_sync(0xFFFFFFFF, value, owner); };
        if (past) {
            found.tiles += of_owner(tiles_so_far - tiles);
            found.blocks += of_owner(blocks_so_far - blocks);
            return {found.group + owner, int(of_owner(start)), int(of_owner(end)), found.tiles, found.blocks};
        }
        found.tiles += of_owner(tiles_so_far);
        found.blocks += of_owner(blocks_so_far);
        found.start = of_owner(end);
    }
    return {groups, found.start, found.start, found.tiles, found.blocks};
}

__device__ __forceinline__ uint32_t whole_tiles(uint32_t blocks) { return (blocks + 3) / 4 * 4; }  // of blocked scales

// What both groupings are given. The nvfp4 scale of a group is entry `group * entry_step` of those given.
template <class Scale>
struct ColumnGroups {
    Scale* scales;
    int64_t scales_stride, M;
    const int* offsets;
    int groups;
    int64_t entry_step;

    __device__ __forceinline__ int64_t entry(int group) const { return min(group, groups - 1) * entry_step; }
};

// Ragged in, ragged out: row i of x is element i of q's rows, and the groups' scales follow one another without a gap;
// blocked, each group is a matrix by itself, and what no group reaches is zero.
template <class X, class Of, class Tile>
struct ContiguousGroups : ColumnGroups<typename Of::Type::Scale> {
    using Format = typename Of::Type;
    using Scale = typename Format::Scale;
    using In = Input<X>;
    static constexpr bool ROWS_FOLLOW = true, STORES_PADDING = false;
    static constexpr int BLOCK = Format::BLOCK, PER_BYTE = Format::ELEMENTS_PER_BYTE;

    const uint8_t* x;
    int64_t x_stride;  // in bytes
    typename Of::Argument format_argument;

    __device__ __forceinline__ TilePlace<Scale> place(Layout layout, uint32_t tile, uint64_t columns) const {
        const uint32_t padding = layout == Layout::blocked ? 3 : 0;  // to whole tiles, without a branch
        auto blocks_of = [&](int rows) {
            return (uint32_t(rows + BLOCK - 1) / BLOCK + padding) & ~padding;
        };
        const TileGroup found = group_of_tile<Tile::ROWS>(this->offsets, this->groups, tile, blocks_of);
        const int first = (tile - found.tiles) * Tile::ROWS, row = found.start + first;
        const int rows = max(min(found.end - row, Tile::ROWS), 0);
        uint32_t blocks = blocks_of(found.end - found.start);
        if (layout == Layout::blocked) {
            if (found.group == this->groups)
                blocks = whole_tiles((this->M + BLOCK - 1) / BLOCK) + 4 * this->groups - found.blocks;
            return {found.group, row, rows, row,
                    {this->scales + columns * found.blocks, int64_t(blocks) * 128, blocks, uint32_t(first) / BLOCK}};
        }
        const int64_t origin = layout == Layout::plain ? found.blocks : found.blocks * this->scales_stride;
        return {found.group, row, rows, row,
                {this->scales + origin, this->scales_stride, blocks, uint32_t(first) / BLOCK}};
    }

    // The copy engine takes a whole tile that begins at a multiple of 16 bytes of q; else the threads shift and store.
    template <class Cols>
    __device__ __forceinline__ void store(const Cols& cols, const TensorMap& map, uint8_t* q, int64_t q_stride, int column,
                                          int64_t K, const TilePlace<Scale>& place) const {
        if (place.rows == 0) return;
        if (place.rows == Tile::ROWS && place.element % Cols::CHUNK_ROWS == 0) {
            cols.store(map, q, q_stride, column, K, place.element, this->M);
            return;
        }
        const int columns = min(int64_t(Tile::COLUMNS), K - column);
        const int end = place.element + place.rows;
        q += column * q_stride;
        store_shifted(cols, q, q_stride, columns, place.element, end);
        if constexpr (PER_BYTE == 2) {
            if (end % 2 == 1)
#pragma unroll 1
                for (int c = threadIdx.x; c < columns; c += Tile::THREADS) {
                    const int last = place.rows - 1;
                    const uint32_t low = cols.word_at(c, last / Cols::WORD_ROWS) >> last % Cols::WORD_ROWS * 4 & 0xF;
                    q[c * q_stride + end / 2] = low | first_element(place.group, end, column + c) << 4;
                }
        }
    }

private:
    // Whole bytes of rows [begin, end) of q, 16 at a time; those at either end of the tile one by one. Of a byte of two
    // elements the tile with the lower one is the owner.
    template <class Cols>
    static __device__ __forceinline__ void store_shifted(const Cols& cols, uint8_t* q, int64_t q_stride, int columns, int begin,
                                                         int end) {
        constexpr int CHUNKS = Tile::ROWS / Cols::CHUNK_ROWS, BITS = 8 / PER_BYTE, WORDS = Tile::ROWS / Cols::WORD_ROWS;
        const int first_byte = (begin + PER_BYTE - 1) / PER_BYTE, end_byte = end / PER_BYTE;
        const int first_whole = (first_byte + 15) / 16 * 16, end_whole = max(end_byte / 16 * 16, first_whole);
#pragma unroll 1
        for (int i = threadIdx.x; i < columns * CHUNKS; i += Tile::THREADS) {
            const int c = i / CHUNKS, byte = first_whole + i % CHUNKS * 16;
            if (byte >= end_whole) continue;
            const int element = byte * PER_BYTE - begin, word = element / Cols::WORD_ROWS;
            const int shift = element % Cols::WORD_ROWS * BITS;
            uint32_t words[5];
#pragma unroll
            for (int w = 0; w < 5; w++) words[w] = cols.word_at(c, min(word + w, WORDS - 1));
            auto shifted = [&](int w) { return __funnelshift_r(words[w], words[w + 1], shift); };
            *reinterpret_cast<uint4*>(q + c * q_stride + byte) = make_uint4(shifted(0), shifted(1), shifted(2), shifted(3));
        }
#pragma unroll 1
        for (int i = threadIdx.x; i < columns * 2; i += Tile::THREADS) {
            const int c = i / 2, from = i % 2 == 0 ? first_byte : end_whole;
            const int to = i % 2 == 0 ? min(first_whole, end_byte) : end_byte;
#pragma unroll 1
            for (int byte = from; byte < to; byte++) {
                const int element = byte * PER_BYTE - begin, word = element / Cols::WORD_ROWS;
                q[c * q_stride + byte] = __funnelshift_r(cols.word_at(c, word), cols.word_at(c, min(word + 1, WORDS - 1)),
                                                         element % Cols::WORD_ROWS * BITS);
            }
        }
    }

    // The element at row `row` of x, where a block begins: it shares a byte with the last row of a tile. 0 after the last
    // group. The tile that has it is another one, so it is computed here once more.
    __device__ __forceinline__ uint32_t first_element(int group, int row, int column) const {
        while (group < this->groups && this->offsets[group] <= row) group++;
        if (group == this->groups) return 0;
        const int rows = min(BLOCK, this->offsets[group] - row);
        uint32_t first = 0, largest = 0;
#pragma unroll 4
        for (int r = 0; r < rows; r++) {
            const uint8_t* at = x + (row + r) * x_stride + column * Tile::X_BYTES;
            const uint32_t value = Tile::X_BYTES == 2 ? *reinterpret_cast<const uint16_t*>(at)
                                                      : *reinterpret_cast<const uint32_t*>(at);
            if (r == 0) first = value;
            largest = max(largest, In::magnitude_at(value, 0) & 0x7FFFFFFF);
        }
        Format format = Of::make(format_argument, this->entry(group));
        format.prepare();
        const float multiplier = format.multiplier(format.scale_of(In::magnitude_to_float(largest)));
        float values[In::VALUES];
        In::to_float(make_uint4(first, 0, 0, 0), values);
        uint32_t elements[1];
        format.template encode_loaded<Input<f32>>(make_uint4(__float_as_uint(values[0]), 0, 0, 0), multiplier, elements);
        return elements[0] & 0xF;
    }
};

// Every group begins at a multiple of 128 of q's rows, and of the scales'; rows of padding, and all after the last group,
// are written as zero. Tiles are those of the output, one after the other.
template <class Of, class Tile>
struct PaddedGroups : ColumnGroups<typename Of::Type::Scale> {
    using Format = typename Of::Type;
    using Scale = typename Format::Scale;
    static constexpr bool ROWS_FOLLOW = true, STORES_PADDING = true;
    static constexpr int BLOCK = Format::BLOCK, TILE_BLOCKS = Tile::ROWS / BLOCK;
    static_assert(Tile::ROWS == 128, "what groups are padded to");

    __device__ __forceinline__ int64_t length() const { return this->M + 128 * this->groups; }

    __device__ __forceinline__ TilePlace<Scale> place(Layout layout, uint32_t tile, uint64_t columns) const {
        const TileGroup found = group_of_tile<Tile::ROWS>(this->offsets, this->groups, tile, [](int) { return 0u; });
        const int first = (tile - found.tiles) * Tile::ROWS, row = found.start + first;
        const int rows = max(min(found.end - row, Tile::ROWS), 0);
        const uint32_t all = (length() + BLOCK - 1) / BLOCK;
        if (layout != Layout::blocked)
            return {found.group, row, rows, int(tile * Tile::ROWS), {this->scales, this->scales_stride, all, tile * TILE_BLOCKS}};
        const uint32_t before = found.tiles * TILE_BLOCKS;
        const uint32_t tiles = (found.end - found.start + Tile::ROWS - 1) / Tile::ROWS;
        const uint32_t blocks = found.group == this->groups ? whole_tiles(all) - before : tiles * TILE_BLOCKS;
        return {found.group, row, rows, int(tile * Tile::ROWS),
                {this->scales + columns * before, int64_t(blocks) * 128, blocks, uint32_t(first) / BLOCK}};
    }

    template <class Cols>
    __device__ __forceinline__ void store(const Cols& cols, const TensorMap& map, uint8_t* q, int64_t q_stride, int column,
                                          int64_t K, const TilePlace<Scale>& place) const {
        cols.store(map, q, q_stride, column, K, place.element, length());
    }
};

// Where padded groups start and end, for whoever reads them. By one warp.
__device__ __forceinline__ void store_padded_bounds(const int* offsets, int groups, int* starts, int* ends) {
    const int lane = threadIdx.x % 32;
    int done = 0;
#pragma unroll 1
    for (int first = 0; first < groups; first += 32) {
        const int group = first + lane, at = min(group, groups - 1);
        const int rows = offsets[at] - (at == 0 ? 0 : offsets[at - 1]);
        const int padded = group < groups ? (rows + 127) / 128 * 128 : 0;
        const int end = done + warp_sums(padded, lane);
        if (group < groups) {
            starts[group] = end - padded;
            ends[group] = end;
        }
        done = __shfl_sync(0xFFFFFFFF, end, 31);
    }
}

}  // namespace zoo
