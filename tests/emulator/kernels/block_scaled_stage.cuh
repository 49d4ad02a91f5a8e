// What differs between the block-scaled kinds of tcgen05.mma, for a stage that holds 128 bytes of K per row.
//
//   kind              elements             scales          K per stage   instructions x scales each   512-byte scale blocks
//   mxf8f6f4          8 bits (or 4/6 in 8) ue8m0 per 32    128           4 x 1                        1
//   mxf4              4 bits, packed       ue8m0 per 32    256           4 x 2                        2
//   mxf4nvf4          4 bits, packed       ue4m3 per 16    256           4 x 4                        4
//
// B_UNPACKED: B is e2m1 in kind mxf8f6f4. TMA spreads 16 values (8 bytes) over 16 bytes of shared memory, so half the bytes travel.
#pragma once

#include <cstdint>

#include "common/block_scaled_mma.cuh"

constexpr int ROW_BYTES = 128;
constexpr int INSTRUCTIONS = ROW_BYTES / 32;  // per stage: 32 bytes of K each
constexpr int MAX_SCALE_BLOCKS = 4;

template <zoo::MmaKind KIND, bool B_UNPACKED>
struct ScaledStage {
    static_assert(KIND == zoo::MmaKind::mxf8f6f4 || !B_UNPACKED, "the fp4 kinds read packed values");
    static constexpr bool PACKED_FP4 = KIND != zoo::MmaKind::mxf8f6f4;
    static constexpr int TILE_K = PACKED_FP4 ? 256 : 128;
    static constexpr int SCALES_PER_INSTRUCTION = KIND == zoo::MmaKind::mxf8f6f4 ? 1 : KIND == zoo::MmaKind::mxf4 ? 2 : 4;
    static constexpr int SCALE_BLOCKS = INSTRUCTIONS * SCALES_PER_INSTRUCTION / 4;  // 128 rows x 4 scales each
    static constexpr int SCALE_BYTES = SCALE_BLOCKS * 512;
    static constexpr int SCALE_COLUMNS = SCALE_BLOCKS * 4;  // of tensor memory
    static constexpr bool SCALES_ARE_UE8M0 = KIND != zoo::MmaKind::mxf4nvf4;
    static constexpr uint32_t TYPE_A = PACKED_FP4 ? zoo::TYPE_E2M1_PACKED : zoo::TYPE_E4M3;
    static constexpr uint32_t TYPE_B = PACKED_FP4   ? zoo::TYPE_E2M1_PACKED
                                       : B_UNPACKED ? zoo::TYPE_E2M1_IN_8_BITS
                                                    : zoo::TYPE_E4M3;
    static constexpr uint32_t B_ROW_BYTES_MOVED = B_UNPACKED ? ROW_BYTES / 2 : ROW_BYTES;  // what TMA counts per row of B
    static_assert(SCALE_BLOCKS <= MAX_SCALE_BLOCKS, "shared memory is sized for the largest");
};
