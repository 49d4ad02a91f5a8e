// What differs between block-scaled formats, of a stage that holds lines of 128 bytes of K.
//
//                    elements a line    a step of K    its scales    512-byte tiles of scales a line (128 rows x 4)
//     mxfp8          128                32             1             1
//     mxfp4          256                64             2             2
//     nvfp4          256                64             4             4
//
// Weights of mxfp8 may be MXFP4, too: in shared memory, where the copy engine lays 16 elements in 16 bytes, they are mxfp8's.
#pragma once

#include <cstdint>

#include "common/block_scaled_mma.cuh"
#include "common/variant.cuh"

namespace zoo {

constexpr int LINE_BYTES = 128, STEPS = 4, SCALE_TILE_BYTES = 512, SCALE_TILE_ROWS = 128, SCALES_A_TILE_ROW = 4;

template <MmaKind MMA_, int ELEMENTS_A_STEP_, int BLOCK, bool UE8M0_>
struct BlockScaled {
    static constexpr MmaKind MMA = MMA_;
    static constexpr bool UE8M0 = UE8M0_;
    static constexpr int ELEMENTS_A_STEP = ELEMENTS_A_STEP_, ELEMENTS_A_LINE = STEPS * ELEMENTS_A_STEP;
    static constexpr int ELEMENTS_A_SCALE = BLOCK, SCALES_A_STEP = ELEMENTS_A_STEP / BLOCK;
    static constexpr int SCALE_TILES = STEPS * SCALES_A_STEP / SCALES_A_TILE_ROW;  // of a line, one after the other
};

using Mxfp8 = BlockScaled<MmaKind::mxf8f6f4, 32, 32, true>;
using Mxfp4 = BlockScaled<MmaKind::mxf4, 64, 32, true>;
using Nvfp4 = BlockScaled<MmaKind::mxf4nvf4, 64, 16, false>;

// Of a line of weights, as barriers count them: 4 bits laid in 8 count as 4. `types`: bits of the instruction's descriptor.
template <class Kind>
__device__ __forceinline__ int weight_bytes(uint32_t types) {
    constexpr uint32_t E2M1 = 5;
    return Kind::MMA == MmaKind::mxf8f6f4 && (types >> 10 & 7) == E2M1 ? LINE_BYTES / 2 : LINE_BYTES;
}

}  // namespace zoo
