// Dequantizes stored 4-bit weights to e4m3 in registers, as packed.cuh does for packed weights. Included by kernels with FP8 tokens and stored
// weights.
//
// Signs are not where the packer would put them, so each word needs two more byte permutations and a mask. A negative scale has a table entry
// of its own, whose signs invert the signs of codes.
#pragma once

#include <cstdint>

#include "gemm/hopper_w4/weights/packed.cuh"
#include "gemm/hopper_w4/weights/stored.cuh"

namespace zoo {

struct StoredWords : PackedWords {};  // codes are in the sequence of columns

__device__ __forceinline__ void unpack(const StoredWords& stored, const RowMagnitudes& entries, uint32_t (&words)[8]) {
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
struct StoredBlockFragments : BlockFragments<Tile> {
    static constexpr bool NVFP4 = Tile::FORMAT == WeightFormat::nvfp4;
    static constexpr int ROW_BYTES = 128;

    RowsOfLane<Tile> rows;
    ScalesAhead<Tile::FORMAT> ahead;
    uint32_t now[2], selector;
    int above[2];  // mxfp4: added to a scale, it gives the index into the table
    int lower;     // bytes from the upper row's codes to the lower row's

    __device__ __forceinline__ void begin(const StoredScales<RowsOfLane<Tile>>& scales, const Work& work) {
        rows = scales.of_lane;
        const int thread = reread_thread_index(), quarter = thread % 4;
        const int row = rows.upper(work, thread);
        lower = rows.bytes_apart(quarter / 2);
        selector = 0x4440 | (NVFP4 ? quarter : quarter / 2);
        if constexpr (!NVFP4)
#pragma unroll
            for (int h = 0; h < 2; h++)
                above[h] = row + rows.apart() * h < scales.rows ? 126 - scales.largest_of(work.group, row + rows.apart() * h) : 0;
        ahead.begin(scales, work, row, quarter);
    }

    __device__ __forceinline__ void find_addresses(const Tile& tile) {
        const uint32_t thread = reread_thread_index(), row = rows.upper_from_there(thread), quarter = thread % 4;
        this->first_codes = rows.rows_at(tile) + row * ROW_BYTES + (quarter / 2 ^ row % 8) * 16 + quarter % 2 * 8;
        asm volatile("" : "+r"(this->first_codes));
    }
    __device__ __forceinline__ void set_unpacked_stage(const Tile& tile, int stage) {
        this->codes = this->first_codes + stage * sizeof(tile.weights[0]);
        asm volatile("" : "+r"(this->codes));
        now[0] = ahead.soon[0];
        now[1] = ahead.soon[1];
        ahead.read();
    }

    __device__ __forceinline__ StoredWords load(int chunk, int) const {
        StoredWords stored;
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

template <class Tile>
    requires(Tile::STORED)
struct FragmentsOfTile<Tile> {
    using type = StoredBlockFragments<Tile>;
};

}  // namespace zoo
