// Contiguous groups: they are back to back in x and in q. Included by kernels that quantise columns of groups.
//
// Row i of x is element i of the rows of q. The scales of the groups follow one another without a gap. Blocked scales are a
// matrix of their own for every group, and all scales past the last group are zero.
//
// A group may begin at any element of q, so most tiles do not begin at a multiple of 16 bytes. Threads shift such a tile:
//
//   q, bytes     |  unit  |  unit  |  unit  |  unit  |        a unit: a 32-byte sector of L2 (FP4: 16 bytes)
//   tile             |-------------------------|              elements of the tile
//   stores           bytes|16 B each        |bytes            whole units by 16 bytes a thread, both ends byte by byte
#pragma once

#include <cstdint>

#include "common/input_values.cuh"
#include "common/tensor_copy.cuh"
#include "common/variant.cuh"
#include "quantize/columns/column_results.cuh"
#include "quantize/groups/tile_groups.cuh"

namespace zoo {

template <class X, class Traits, class Tile>
struct ContiguousGroups : ColumnGroups<typename Traits::Type::Scale> {
    using Format = typename Traits::Type;
    using Scale = typename Format::Scale;
    using In = Input<X>;
    static constexpr bool BLANKS_TAIL = true, STORES_PADDING = false;
    static constexpr int BLOCK = Format::BLOCK, PER_BYTE = Format::ELEMENTS_PER_BYTE;

    const uint8_t* x;
    int64_t x_stride;  // in bytes
    typename Traits::Argument format_argument;
    const int* index = nullptr;  // of the rows of the groups in x, as in columns/grouped_both.cuh, or null

    __device__ __forceinline__ TileAssignment<Scale> assign(Layout layout, uint32_t tile, uint64_t columns) const {
        const uint32_t padding = layout == Layout::blocked ? 3 : 0;  // rounds up to whole tiles without a branch
        auto blocks_of = [&](int rows) { return (uint32_t(rows + BLOCK - 1) / BLOCK + padding) & ~padding; };
        const TileGroup found = group_of_tile<Tile::ROWS>(this->offsets, this->groups, tile, blocks_of);
        const int first = (tile - found.tiles) * Tile::ROWS, row = found.start + first;
        const int rows = max(min(found.end - row, Tile::ROWS), 0);
        uint32_t blocks = blocks_of(found.end - found.start);
        if (layout == Layout::blocked) {
            if (found.group == this->groups)
                blocks = whole_scale_tiles((this->M + BLOCK - 1) / BLOCK) + 4 * this->groups - found.blocks;
            return {found.group,
                    row,
                    rows,
                    row,
                    {this->scales + columns * found.blocks, int64_t(blocks) * 128, blocks, uint32_t(first) / BLOCK}};
        }
        const int64_t origin = layout == Layout::plain ? found.blocks : found.blocks * this->scales_stride;
        return {found.group, row, rows, row, {this->scales + origin, this->scales_stride, blocks, uint32_t(first) / BLOCK}};
    }

    // TMA stores a whole tile that begins at a multiple of 16 bytes of q. Threads shift and store all other tiles.
    template <class Cols>
    __device__ __forceinline__ void store(const Cols& cols, const TensorMap& map, uint8_t* q, int64_t q_stride, int column,
                                          int64_t K, const TileAssignment<Scale>& assignment) const {
        if (assignment.rows == 0) return;
        if (assignment.rows == Tile::ROWS && assignment.element % Cols::CHUNK_ROWS == 0) {
            cols.store(map, q, q_stride, column, K, assignment.element, this->M);
            return;
        }
        const int columns = min(int64_t(Tile::COLUMNS), K - column);
        const int end = assignment.element + assignment.rows;
        q += column * q_stride;
        store_shifted(cols, q, q_stride, columns, assignment.element, end);
        if constexpr (PER_BYTE == 2) {
            if (end % 2 == 1)
#pragma unroll 1
                for (int c = threadIdx.x; c < columns; c += Tile::THREADS) {
                    const int last = assignment.rows - 1;
                    const uint32_t low = cols.word_at(c, last / Cols::WORD_ROWS) >> last % Cols::WORD_ROWS * 4 & 0xF;
                    q[c * q_stride + end / 2] = low | first_element(assignment.group, end, column + c) << 4;
                }
        }
    }

   private:
    // Stores whole bytes of rows [begin, end) of q. A thread shifts two chunks of the tile into 16 bytes of a whole unit.
    // The units at both ends are shared with other tiles: neighbouring lanes store one byte each in one instruction. L2
    // charges a store of a part of a sector the same for 1 byte and for 31. FP4 has half as many bytes, so its unit is 16
    // bytes.
    template <class Cols>
    static __device__ __forceinline__ void store_shifted(const Cols& cols, uint8_t* q, int64_t q_stride, int columns, int begin,
                                                         int end) {
        constexpr int UNIT = PER_BYTE == 1 ? 32 : 16;
        constexpr int CHUNKS = Tile::ROWS / Cols::CHUNK_ROWS, BITS = 8 / PER_BYTE;
        const int last_row = end - begin - 1;  // the last row with data; later chunks of its block may not exist
        const int first_byte = (begin + PER_BYTE - 1) / PER_BYTE, end_byte = end / PER_BYTE;
        const int first_whole = (first_byte + UNIT - 1) / UNIT * UNIT;
        const int end_whole = max(end_byte / UNIT * UNIT, first_whole);
        const int skipped = first_whole * PER_BYTE - begin;  // elements before the first whole unit
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
        // Bytes b >= head belong to the first unit, bytes b < tail to the last unit. In short tiles a byte may belong to
        // both.
        const int head = first_byte % UNIT == 0 ? UNIT : first_byte % UNIT, tail = max(end_byte - end_whole, 0);
        const int b = threadIdx.x % UNIT;
#pragma unroll 1
        for (int side = 0; side < 2; side++) {
            const int byte = b >= head && side == 0 ? first_whole - UNIT + b : end_whole + b;
            if (side == 0 ? byte >= end_byte || b < head && b >= tail : b < head || b >= tail) continue;
            const int element = byte * PER_BYTE - begin, word = element / Cols::WORD_ROWS;
            const int next = min(word + 1, last_row / Cols::WORD_ROWS), bit = element % Cols::WORD_ROWS * BITS;
#pragma unroll 1
            for (int c = threadIdx.x / UNIT; c < columns; c += Tile::THREADS / UNIT)
                q[c * q_stride + byte] = __funnelshift_r(cols.word_at(c, word), cols.word_at(c, next), bit);
        }
    }

    // The element at row `row` of x, the first row of the next group. It shares a byte with the last row of this tile, so
    // this CTA computes it, too. The result is 0 after the last group.
    __device__ __forceinline__ uint32_t first_element(int group, int row, int column) const {
        while (group < this->groups && this->offsets[group] <= row) group++;
        if (group == this->groups) return 0;
        const int rows = min(BLOCK, this->offsets[group] - row);
        uint32_t first = 0, largest = 0;
#pragma unroll 4
        for (int r = 0; r < rows; r++) {
            const int source = index ? index[row + r] : row + r;
            if (index && source < 0) continue;
            const uint8_t* at = x + source * x_stride + column * Tile::X_BYTES;
            const uint32_t value =
                Tile::X_BYTES == 2 ? *reinterpret_cast<const uint16_t*>(at) : *reinterpret_cast<const uint32_t*>(at);
            if (r == 0) first = value;
            largest = max(largest, In::magnitude_at(value, 0) & 0x7FFFFFFF);
        }
        Format format = Traits::make(format_argument, this->tensor_scale_index(group));
        format.prepare();
        const float multiplier = format.multiplier(format.scale_of(In::magnitude_to_float(largest)));
        float values[In::VALUES];
        In::to_float(make_uint4(first, 0, 0, 0), values);
        uint32_t elements[1];
        format.template encode_loaded<Input<f32>>(make_uint4(__float_as_uint(values[0]), 0, 0, 0), multiplier, elements);
        return elements[0] & 0xF;
    }
};

}  // namespace zoo
