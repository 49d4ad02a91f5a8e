// The scales of a tile of results in shared memory: LINES rows of q, BLOCKS scales each, and how they leave.
//
// A store of less than a 32-byte sector costs the L2 cache as much as a whole one.
//
//   blocked    they lie here as in memory (drawn in scale_layout.cuh), for 4 blocks 32 times 16 bytes, of 64 lines 8; a thread
//              stores so many
//   mn_major   those of a block follow each other
//   plain      a tile has BLOCKS of each line, neighbours store the rest of a sector
#pragma once

#include <cstdint>
#include <type_traits>

#include "common/variant.cuh"

namespace zoo {

// Where a tile's scales go. `stride` as in scale_layout.cuh. Lines from lines_end on and blocks from blocks_end on do not
// exist; blocked scales are padded. What exists, but has no elements in this tile, is zero.
template <class Scale>
struct ScalesPlace {
    Scale* scales;
    int64_t stride;
    int64_t line, lines_end;
    uint32_t block, blocks_end;
    int real_blocks;  // of this tile's
};

template <class Scale, int LINES, int BLOCKS>
struct TileScales {
    static constexpr bool CAN_BE_BLOCKED = sizeof(Scale) == 1;
    static constexpr int COUNT = LINES * BLOCKS;
    static constexpr int GROUPS = LINES / 32, PIECE = GROUPS * 4;  // bytes of a line of blocked scales
    static_assert(!CAN_BE_BLOCKED || (LINES == 64 || LINES == 128) && BLOCKS % 4 == 0);

    alignas(16) Scale scales[COUNT];

    static __device__ __forceinline__ int index(Layout layout, int line, int block) {
        if (CAN_BE_BLOCKED && layout == Layout::blocked) return (block / 4 * 32 + line % 32) * PIECE + line / 32 * 4 + block % 4;
        return line * BLOCKS + block;
    }

    __device__ __forceinline__ void put(Layout layout, int line, int block, uint32_t scale) {
        scales[index(layout, line, block)] = scale;
    }

    // After a barrier, by all threads.
    __device__ __forceinline__ void store(Layout layout, const ScalesPlace<Scale>& place) const {
        const bool blocked = CAN_BE_BLOCKED && layout == Layout::blocked;
        const bool mn_major = !CAN_BE_BLOCKED && layout == Layout::mn_major;
        const int real_lines = min(place.lines_end - place.line, int64_t(LINES)), lines = blocked ? LINES : real_lines;
        const int blocks = min(int(blocked ? (place.blocks_end + 3) / 4 * 4 : place.blocks_end) - int(place.block), BLOCKS);
        const int64_t line_step = mn_major ? 1 : place.stride, block_step = mn_major ? place.stride : 1;
        Scale* first = place.scales;
        if (blocked) {
            first += place.line / 128 * place.stride + place.block / 4 * 512 + place.line % 128 / 32 * 4;
            if (place.real_blocks == BLOCKS && real_lines == LINES && reinterpret_cast<uintptr_t>(first) % PIECE == 0) {
                using Piece = std::conditional_t<GROUPS == 4, uint4, uint2>;
                const int i = threadIdx.x;
                if (i < COUNT / PIECE) *reinterpret_cast<Piece*>(first + i * 16) = reinterpret_cast<const Piece*>(scales)[i];
                return;
            }
        } else {
            first += place.line * line_step + place.block * block_step;
        }
#pragma unroll 1
        for (int i = threadIdx.x; i < COUNT; i += blockDim.x) {
            int line = i / BLOCKS, block = i % BLOCKS;
            if (mn_major) line = i % LINES, block = i / LINES;
            int64_t at = line * line_step + block * block_step;
            if (blocked) {
                line = i / PIECE % 32 + i % PIECE / 4 * 32, block = i / (32 * PIECE) * 4 + i % 4;
                at = i / PIECE * 16 + i % PIECE;
            }
            if (line >= lines || block >= blocks) continue;
            const bool real = line < real_lines && block < place.real_blocks;
            first[at] = real ? scales[mn_major ? line * BLOCKS + block : i] : 0;
        }
    }
};

}  // namespace zoo
