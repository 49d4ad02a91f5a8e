// Stored weights, in the layout of a checkpoint: rows of codes, two in a byte, the even column in the low nibble, and rows of scales. Included
// by all kernels with stored weights, for FP8 and bf16 tokens.
//
// A is in fragment order, so a lane's 16 weights of a row and 64 columns are neighbours: eight bytes of each of its two rows.
//
//     codes     64 weight rows x 128 bytes of a K block, by a tensor copy with the 128-byte swizzle
//     scales    16 bytes (nvfp4) or 8 (mxfp4) of a row and a K block. They may begin at any byte, which tensor copies do not allow. Four lanes
//               share two rows: each reads a quarter of the scales from global memory, a K block ahead, and shuffles distribute them. A lane
//               reads byte by byte where a row of scales has no whole quarters or is not aligned to them
#pragma once

#include <cstdint>
#include <type_traits>

#include "common/wgmma.cuh"
#include "gemm/hopper_w4/operands.cuh"
#include "gemm/schedule/grouped_schedule.cuh"

namespace zoo {

// A lane's two weight rows, upper and lower: their numbers in the matrix, and where their codes are among the tile's 128 rows in shared memory.
// Without gates the two rows are eight apart.
struct RowsEightApart {
    template <class Tile>
    static __device__ __forceinline__ uint32_t rows_at(const Tile& tile) {  // the first row of this warpgroup
        return shared_address(tile.weights[0][warpgroup_index()]);
    }
    static __device__ __forceinline__ int upper_from_there(int thread) { return thread % WARPGROUP / 32 * 16 + thread % 32 / 4; }
    static __device__ __forceinline__ int upper(const Work& work, int thread) {  // in the matrix
        return work.weight + thread / 32 * 16 + thread % 32 / 4;
    }
    static constexpr __device__ int apart() { return 8; }
    static constexpr __device__ int bytes_apart(int) { return 8 * 128; }
};

// A lane's rows are a gate and its up, which become a column of h. Either each up follows its gate (interleaved), or all ups follow all gates, and
// then a tile has 64 gates and 64 ups.
struct GateAndUp {
    int columns;      // number of columns of h
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

    // The distance from a 16-byte piece of the upper row to the same piece of the lower row. The swizzle exchanges neighbouring pieces in odd rows.
    __device__ __forceinline__ int bytes_apart(int piece) const {
        return interleaved ? 128 + (piece % 2 == 0 ? 16 : -16) : CHUNK_ROWS * 128;
    }
};

template <class Tile>
using RowsOfLane = std::conditional_t<Tile::LAYOUT == WeightLayout::stored_gate_up, GateAndUp, RowsEightApart>;

// Rows of scales of stored weights. Strides are in bytes. mxfp4 has `largest`: the scale of each row that becomes 2^6.
template <class Rows = RowsEightApart>
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

// A lane's quarter of the scales of its two rows, read a K block ahead. After a row's last scale the lane reads other scales of that row. That is
// harmless: codes are zeros there, and a NaN among those scales makes the whole column NaN anyway. A missing row reads the last row's scales.
template <WeightFormat FORMAT>
struct ScalesAhead {
    // Bytes that a lane reads, and bytes of a K block.
    static constexpr int READ = FORMAT == WeightFormat::nvfp4 ? 4 : 2, OF_BLOCK = 4 * READ;

    const uint8_t* next[2];  // upper and lower row: the first scale that has not been read
    int left;                // bytes from there to the end of the row
    bool whole;              // all quarters are complete and aligned, and one load reads a quarter
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

// The signs of four of eight codes, in bit 7 of each byte. SELECTOR chooses the lower or the upper four.
template <uint32_t SELECTOR>
__device__ __forceinline__ uint32_t signs_of(uint32_t word) {
    return __byte_perm(word << 4, word, SELECTOR) & 0x80808080;
}

// FourBitOperands whose B comes by tensor copies: a box of the tile's rows, or a box of its gates and a box of its ups.
template <class Tile>
struct StoredOperands : FourBitOperands<Tile> {
    const TensorMap& stored;  // boxes have 128 rows, or 64 gates or ups
    StoredScales<RowsOfLane<Tile>> stored_scales;

    __device__ __forceinline__ void load(Tile& tile, int stage, const Work& work, int chunk) const {
        Barrier* full = &tile.full[stage];
        arrive_expecting_bytes(full, sizeof(tile.weights[0]) + (Tile::GATHERS ? 0 : Tile::LINES * this->box_rows * 128));
        const int matrix = work.group * stored_scales.rows;
        auto load_rows = [&](int half, int row) {
            load_box(tile.weights[stage][half], stored, chunk * (CHUNK / 2), matrix + row, full);
        };
        if constexpr (Tile::LAYOUT == WeightLayout::stored_gate_up) {
            load_rows(0, stored_scales.of_lane.first(work));
            load_rows(1, stored_scales.of_lane.second(work));
        } else {
            load_rows(0, work.weight);
        }
        this->load_tokens(tile, stage, work, chunk);
    }
};

// Rows of a kernel of stored weights: groups or one matrix.
using StoredRows = GroupRowsOrMatrix<false>;

template <class V, class Tile>
using StoredScheduleFor = std::conditional_t<(V::SPLITS > 1), SplitKSchedule<Tile, V::SPLITS>,
                                             GroupedScheduleFor<Tile, V::TOKENS, V::BAND, StoredRows>>;

template <class Schedule>
__device__ __forceinline__ Schedule stored_schedule(const int* ends_or_counts, int groups, int rows, int N, int blocks) {
    if constexpr (requires { Schedule(rows, N, blocks); })
        return Schedule(rows, N, blocks);
    else
        return Schedule(StoredRows{ends_or_counts, rows}, groups, N, blocks);
}

}  // namespace zoo
