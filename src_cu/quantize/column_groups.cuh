// The groupings of the direction `cols`: groups of rows of x lie along M, as weight gradients contract them. Blocks start
// anew with every group, so tiles do: a group of n rows is ceil(n / ROWS) tiles, and rows that follow its end are blank.
//
//   x, rows      |  group 0   |   group 1    |g2|      rows after the last group       (offsets on the device)
//   tiles        | 0 | 1 | 2  | 3  | 4  | 5  |6 |      further tiles are of «the rest»
//
// How many tiles there are only the device knows: the grid is large enough for any sizes. The first warp of a CTA finds the
// group of its tile, a 32nd of the groups a lane.
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
#pragma unroll 1
    for (int distance = 1; distance < 32; distance *= 2) {
        const uint32_t below = __shfl_up_sync(0xFFFFFFFF, value, distance);
        if (lane >= distance) value += below;
    }
    return value;
}

// The group of a tile; by a whole warp. blocks_of(rows): how many scales a group has. A lane takes a 32nd of the groups, so one
// scan is enough: the sums of its groups, then of the lanes before it, then the lane that has the tile goes through its own.
template <int ROWS, class BlocksOf>
__device__ __forceinline__ TileGroup group_of_tile(const int* offsets, int groups, uint32_t tile, BlocksOf blocks_of) {
    const int lane = threadIdx.x % 32, own = (groups + 31) / 32;
    const int first = min(lane * own, groups), last = min(first + own, groups) - 1;
    const int end = offsets[last];
    const int end_before = __shfl_up_sync(0xFFFFFFFF, end, 1), start = lane == 0 ? 0 : end_before;
    TileGroup at = {first, start, start, 0, 0};  // tiles and blocks: of the groups before
    auto go_on = [&] {
        at.tiles += uint32_t(at.end - at.start + ROWS - 1) / ROWS;
        at.blocks += blocks_of(at.end - at.start);
        at.start = at.end;
    };
#pragma unroll 1
    for (; at.group <= max(first, last); at.group++) {
        at.end = at.group < last ? offsets[at.group] : end;
        go_on();
    }
    const uint32_t tiles_so_far = warp_sums(at.tiles, lane), blocks_so_far = warp_sums(at.blocks, lane);
    const uint32_t past = __ballot_sync(0xFFFFFFFF, tiles_so_far > tile);
    const int owner = past ? __ffs(past) - 1 : 31;
    at = {first, start, start, tiles_so_far - at.tiles, blocks_so_far - at.blocks};
#pragma unroll 1
    while (true) {
        at.end = at.group < last ? offsets[at.group] : end;
        const TileGroup here = at;
        go_on();
        if (past && (at.tiles > tile || here.group >= last)) {
            at = here;
            break;
        }
        at.group++;
        if (here.group >= last) {
            at.group = groups;
            break;
        }
    }
    auto of_owner = [&](uint32_t value) { return __shfl_sync(0xFFFFFFFF, value, owner); };
    return {int(of_owner(at.group)), int(of_owner(at.start)), int(of_owner(at.end)), of_owner(at.tiles), of_owner(at.blocks)};
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
        auto blocks_of = [&](int rows) { return (uint32_t(rows + BLOCK - 1) / BLOCK + padding) & ~padding; };
        const TileGroup found = group_of_tile<Tile::ROWS>(this->offsets, this->groups, tile, blocks_of);
        const int first = (tile - found.tiles) * Tile::ROWS, row = found.start + first;
        const int rows = max(min(found.end - row, Tile::ROWS), 0);
        uint32_t blocks = blocks_of(found.end - found.start);
        if (layout == Layout::blocked) {
            if (found.group == this->groups)
                blocks = whole_tiles((this->M + BLOCK - 1) / BLOCK) + 4 * this->groups - found.blocks;
            return {found.group,
                    row,
                    rows,
                    row,
                    {this->scales + columns * found.blocks, int64_t(blocks) * 128, blocks, uint32_t(first) / BLOCK}};
        }
        const int64_t origin = layout == Layout::plain ? found.blocks : found.blocks * this->scales_stride;
        return {found.group, row, rows, row, {this->scales + origin, this->scales_stride, blocks, uint32_t(first) / BLOCK}};
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
    // Whole bytes of rows [begin, end) of q. Whole pieces are put together of chunks of the tile, 16 bytes a thread. Of the piece
    // at either end, which another tile shares, neighbouring lanes store a byte each, at once: the L2 cache pays for every
    // store of a part of a sector, be it one byte or 31. A piece is a sector; of FP4, whose columns are half as long, 16 bytes.
    template <class Cols>
    static __device__ __forceinline__ void store_shifted(const Cols& cols, uint8_t* q, int64_t q_stride, int columns, int begin,
                                                         int end) {
        constexpr int PIECE = PER_BYTE == 1 ? 32 : 16;
        constexpr int CHUNKS = Tile::ROWS / Cols::CHUNK_ROWS, BITS = 8 / PER_BYTE;
        const int last_row = end - begin - 1;  // after its block there may be nothing to read
        const int first_byte = (begin + PER_BYTE - 1) / PER_BYTE, end_byte = end / PER_BYTE;
        const int first_whole = (first_byte + PIECE - 1) / PIECE * PIECE;
        const int end_whole = max(end_byte / PIECE * PIECE, first_whole);
        const int skipped = first_whole * PER_BYTE - begin;  // elements before the first whole piece
        const int word_shift = skipped % Cols::CHUNK_ROWS / Cols::WORD_ROWS, shift = skipped % Cols::WORD_ROWS * BITS;
#pragma unroll 1
        for (int i = threadIdx.x; i < columns * CHUNKS; i += Tile::THREADS) {
            const int c = i / CHUNKS, chunk = skipped / Cols::CHUNK_ROWS + i % CHUNKS, byte = first_whole + i % CHUNKS * 16;
            if (byte >= end_whole) continue;
            const uint4 low = cols.chunk_at(c, chunk), high = cols.chunk_at(c, min(chunk + 1, last_row / Cols::CHUNK_ROWS));
            uint32_t words[8] = {low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w};
#pragma unroll
            for (int w = 0; w < 6; w++) words[w] = word_shift & 2 ? words[w + 2] : words[w];
#pragma unroll
            for (int w = 0; w < 5; w++) words[w] = word_shift & 1 ? words[w + 1] : words[w];
            auto shifted = [&](int w) { return __funnelshift_r(words[w], words[w + 1], shift); };
            *reinterpret_cast<uint4*>(q + c * q_stride + byte) = make_uint4(shifted(0), shifted(1), shifted(2), shifted(3));
        }
        // Byte b of a piece belongs to the first one from `head` on, to the last one below `tail`; to both in short tiles only.
        const int head = first_byte % PIECE == 0 ? PIECE : first_byte % PIECE, tail = max(end_byte - end_whole, 0);
        const int b = threadIdx.x % PIECE;
#pragma unroll 1
        for (int side = 0; side < 2; side++) {
            const int byte = b >= head && side == 0 ? first_whole - PIECE + b : end_whole + b;
            if (side == 0 ? byte >= end_byte || b < head && b >= tail : b < head || b >= tail) continue;
            const int element = byte * PER_BYTE - begin, word = element / Cols::WORD_ROWS;
            const int next = min(word + 1, last_row / Cols::WORD_ROWS), bit = element % Cols::WORD_ROWS * BITS;
#pragma unroll 1
            for (int c = threadIdx.x / PIECE; c < columns; c += Tile::THREADS / PIECE)
                q[c * q_stride + byte] = __funnelshift_r(cols.word_at(c, word), cols.word_at(c, next), bit);
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
            const uint32_t value =
                Tile::X_BYTES == 2 ? *reinterpret_cast<const uint16_t*>(at) : *reinterpret_cast<const uint32_t*>(at);
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
        return {found.group,
                row,
                rows,
                int(tile * Tile::ROWS),
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
