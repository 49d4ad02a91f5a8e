// 4-bit weights as a checkpoint stores them: rows of codes, two in a byte, the first in the lower half, and rows of scales.
//
// Tokens are permuted so that a lane's 16 weights of a row and 64 of K are neighbours: here eight bytes of each of its two rows, where
// packed weights have them side by side. Signs are where nobody wants them, so each word takes two byte permutations and a mask more. A negative
// scale has an entry of its own in the table, whose signs turn those of codes.
//
//     codes     64 rows x 128 bytes of a block, by the copy engine, with the swizzle of 128 bytes
//     scales    of a row and a block 16 bytes (nvfp4) or 8 (mxfp4), which no copy engine brings wherever they begin: each of the four lanes
//               that share two rows reads a quarter, a block before it is wanted, and gets a chunk's from the lane that has it. Where rows
//               of scales are no whole quarters, or begin at odd places, it reads byte by byte
#pragma once

#include <cstdint>

#include "common/warp.cuh"
#include "gemm/four_bit/block.cuh"
#include "gemm/four_bit/load.cuh"

namespace zoo {

// Which two rows of a matrix a lane has, an upper and a lower one, and where they lie among a tile's 128 in shared memory: eight apart,
// where sums become D.
struct EightApart {
    template <class Tile>
    static __device__ __forceinline__ uint32_t rows_at(const Tile& tile) {  // of this warpgroup
        return shared_address(tile.weights[0][warpgroup_index()]);
    }
    static __device__ __forceinline__ int upper_from_there(int thread) { return thread % WARPGROUP / 32 * 16 + thread % 32 / 4; }
    static __device__ __forceinline__ int upper(const Work& work, int thread) {  // of the matrix
        return work.weight + thread / 32 * 16 + thread % 32 / 4;
    }
    static constexpr __device__ int apart() { return 8; }
    static constexpr __device__ int bytes_apart(int) { return 8 * 128; }
};

// A gate and its up, where both become a column of h. Each up follows its gate, or all of them follow all gates; then a tile has 64 of each.
struct GateAndUp {
    int columns;      // of h
    int interleaved;  // 0 or 1

    template <class Tile>
    static __device__ __forceinline__ uint32_t rows_at(const Tile& tile) {
        return shared_address(tile.weights[0][0]);
    }
    __device__ __forceinline__ int upper_from_there(int thread) const {
        return (thread / 32 * 8 + thread % 32 / 4) << interleaved;
    }
    __device__ __forceinline__ int upper(const Work& work, int thread) const { return first(work) + upper_from_there(thread); }
    __device__ __forceinline__ int first(const Work& work) const { return work.weight / 2 << interleaved; }
    __device__ __forceinline__ int second(const Work& work) const { return first(work) + (interleaved ? CHUNK_ROWS : columns); }
    __device__ __forceinline__ int apart() const { return interleaved ? 1 : columns; }

    // From 16 bytes of the upper row, an even one if ups follow their gates, to those of the lower one: the swizzle has neighbours trade places.
    __device__ __forceinline__ int bytes_apart(int piece) const {
        return interleaved ? 128 + (piece % 2 == 0 ? 16 : -16) : CHUNK_ROWS * 128;
    }
};

template <class Tile>
using RowsOfLane = std::conditional_t<Tile::LAID == Laid::stored_gates, GateAndUp, EightApart>;

// Scales of weights, row after row; strides in bytes. `largest`: of mxfp4 alone, the scale of each row that becomes 2^6.
template <class Rows = EightApart>
struct StoredScales {
    const uint8_t* first;
    int64_t group_stride, row_stride;
    int rows, row_bytes;
    const uint8_t* largest;
    Rows of_lane = {};

    __device__ __forceinline__ int largest_of(int group, int row) const {
        return largest[int64_t(group) * ((rows + CHUNK_ROWS - 1) / CHUNK_ROWS * CHUNK_ROWS) + row];
    }
};

// The scales of a lane's two rows, on their way from memory: a quarter of a block's. Where there is none, behind the last block of a row, the lane
// reads others of that row: codes are zeros there, and if a scale is no number, neither is anything else of its column. A row that does not exist
// has those of the last.
template <Weights FORMAT>
struct ScalesAhead {
    static constexpr int READ = FORMAT == Weights::nvfp4 ? 4 : 2, OF_BLOCK = 4 * READ;  // bytes: that a lane reads; of a block

    const uint8_t* next[2];  // of the upper and the lower row, of a block that has not been asked for
    int left;                // bytes of a row from there on
    bool whole;              // quarters lie at places where they can be read as such, and are there whole
    uint32_t soon[2];

    __device__ __forceinline__ void begin(const auto& scales, const Work& work, int upper, int quarter) {
        int before = work.first_block * OF_BLOCK + quarter * READ;
        left = max(scales.row_bytes - before, 0);
        if (left == 0) before = 0;
        const int64_t places =
            reinterpret_cast<int64_t>(scales.first) | scales.row_stride | scales.group_stride | scales.row_bytes;
        whole = places % READ == 0;
        const int first = min(upper, scales.rows - 1), second = min(upper + scales.of_lane.apart(), scales.rows - 1);
        next[0] = scales.first + work.group * scales.group_stride + first * scales.row_stride + before;
        next[1] = next[0] + (second - first) * scales.row_stride;
        read();
    }

    __device__ __forceinline__ void read() {
        if (whole)
            read_whole(0), read_whole(1);
        else
            read_bytes(0), read_bytes(1);
        if (left > OF_BLOCK) {
            next[0] += OF_BLOCK;
            next[1] += OF_BLOCK;
            left -= OF_BLOCK;
        }
    }

   private:
    __device__ __forceinline__ void read_whole(int h) {
        if constexpr (READ == 4)
            asm volatile("ld.global.u32 %0, [%1];" : "=r"(soon[h]) : "l"(next[h]));
        else
            asm volatile("ld.global.u16 %0, [%1];" : "=r"(soon[h]) : "l"(next[h]));
    }
    __device__ __forceinline__ void read_bytes(int h) {
        soon[h] = 0;
#pragma unroll
        for (int i = 0; i < READ; i++) {
            uint32_t byte = 0;
            if (i < left) asm volatile("ld.global.u8 %0, [%1];" : "=r"(byte) : "l"(next[h] + i));
            soon[h] |= byte << 8 * i;
        }
    }
};

struct StoredWeights : PackedWeights {};  // whose codes are in their order

// Bytes 0 1 2 3 of the result: of the upper or the lower four of eight codes, whose signs are bit 7 of each.
template <uint32_t SELECTOR>
__device__ __forceinline__ uint32_t signs_of(uint32_t word) {
    return __byte_perm(word << 4, word, SELECTOR) & 0x80808080;
}

__device__ __forceinline__ void unpack(const StoredWeights& stored, const Entries& entries, uint32_t (&words)[8]) {
#pragma unroll
    for (int s = 0; s < 2; s++)
#pragma unroll
        for (int h = 0; h < 2; h++) {
            const uint32_t word = stored.words[2 * s + h], codes = word & 0x77777777;
            words[4 * s + h] = four_magnitudes(entries.of[h], codes) ^ signs_of<0x5140>(word);
            words[4 * s + h + 2] = four_magnitudes(entries.of[h], codes >> 16) ^ signs_of<0x7362>(word);
        }
}

template <class Tile>
struct BlockOfStoredWords : BlockOfWords<Tile> {
    static constexpr bool NVFP4 = Tile::FORMAT == Weights::nvfp4;
    static constexpr int ROW_BYTES = 128;

    RowsOfLane<Tile> rows;
    ScalesAhead<Tile::FORMAT> ahead;
    uint32_t now[2], selector;
    int above[2];  // of mxfp4: what makes of a scale the one that belongs to the table
    int lower;     // how many bytes the lower row's are further

    __device__ __forceinline__ void begin(const StoredScales<RowsOfLane<Tile>>& scales, const Work& work) {
        rows = scales.of_lane;
        const int thread = thread_index_anew(), quarter = thread % 4;
        const int row = rows.upper(work, thread);
        lower = rows.bytes_apart(quarter / 2);
        selector = 0x4440 | (NVFP4 ? quarter : quarter / 2);
        if constexpr (!NVFP4)
#pragma unroll
            for (int h = 0; h < 2; h++)
                above[h] = row + rows.apart() * h < scales.rows ? 126 - scales.largest_of(work.group, row + rows.apart() * h) : 0;
        ahead.begin(scales, work, row, quarter);
    }

    __device__ __forceinline__ void find_places(const Tile& tile) {
        const uint32_t thread = threadIdx.x, row = rows.upper_from_there(thread), quarter = thread % 4;
        this->first_codes = rows.rows_at(tile) + row * ROW_BYTES + (quarter / 2 ^ row % 8) * 16 + quarter % 2 * 8;
        asm volatile("" : "+r"(this->first_codes));
    }
    __device__ __forceinline__ void unpack_from(const Tile& tile, int stage) {
        this->codes = this->first_codes + stage * sizeof(tile.weights[0]);
        asm volatile("" : "+r"(this->codes));
        now[0] = ahead.soon[0];
        now[1] = ahead.soon[1];
        ahead.read();
    }

    __device__ __forceinline__ StoredWeights load(int chunk, int) const {
        StoredWeights stored;
#pragma unroll
        for (int h = 0; h < 2; h++) {
            asm volatile("ld.shared.v2.u32 {%0, %1}, [%2];"
                         : "=r"(stored.words[h]), "=r"(stored.words[2 + h])
                         : "r"((this->codes ^ chunk << 5) + h * lower)
                         : "memory");
            const uint32_t scale = __byte_perm(__shfl_sync(~0u, now[h], chunk, 4), 0, selector);
            stored.scales[h] = NVFP4 ? scale : scale == 255 ? 127 : max(min(int(scale) + above[h], 126), 0);
        }
        return stored;
    }
};

// As FourBitOperands, B by boxes of a tile's rows, or of its gates and its ups.
template <class Tile>
struct StoredOperands : FourBitOperands<Tile> {
    const TensorMap& stored;  // boxes of 128 rows, or of 64 gates or ups
    StoredScales<RowsOfLane<Tile>> stored_scales;

    __device__ __forceinline__ void load(Tile& tile, int stage, const Work& work, int chunk) const {
        Barrier* full = &tile.full[stage];
        arrive_expecting_bytes(full, sizeof(tile.weights[0]) + Tile::LINES * this->token_rows * 128);
        const int matrix = work.group * stored_scales.rows;
        auto load_rows = [&](int half, int row) {
            load_box(tile.weights[stage][half], stored, chunk * (CHUNK / 2), matrix + row, full);
        };
        if constexpr (Tile::LAID == Laid::stored_gates) {
            load_rows(0, stored_scales.of_lane.first(work));
            load_rows(1, stored_scales.of_lane.second(work));
        } else {
            load_rows(0, work.weight);
        }
        this->load_tokens(tile, stage, work, chunk);
    }
};

}  // namespace zoo
