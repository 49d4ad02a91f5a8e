// The shared memory, tensor memory and barriers with which a CTA computes tiles of D. All GEMMs of blackwell/ include it.
//
// tcgen05.mma multiplies MMA operand A, whose rows become lanes of the sums, by MMA operand B, whose rows become columns of the sums.
// Tokens are MMA operand A, and weight rows MMA operand B. In a SWAPPED tile it is the reverse: few tokens become columns.
//
//     shared memory   STAGES x (mma_a: 128 rows, mma_b: COLUMNS / CTAS rows) | SCALE_STAGES x (scales of mma_a, of mma_b)
//     tensor memory   | sums of one tile                       |           scales |
//                     |        sums of the next tile at SECOND_SUMS  |    scales |    512 columns
//
// At 256 columns, two tiles' sums do not fit beside the scales. Then the sums overlap, and the epilogue reads shared columns first.
//
//     barrier               arrivals                                    waits
//     full                  1 + CTAS, and the bytes of all CTAs         MMA warp
//     empty                 1, when the MMAs have read                  producers of each CTA; MMA warp, before it overwrites scales
//     sums_full             1, when the sums are complete               epilogue warps of each CTA
//     sums_empty            4 warps of each CTA                         MMA warp, before it overwrites sums
//     response_full         1, and the 16 bytes of the response         all roles: NextTile in pipeline.cuh
//     response_empty        1 of each role's warps                      element producer of the first CTA, before it requests a tile
//
// Elements and scales of a K block share `full` and `empty`: each further barrier costs the MMA warp instructions in every K block.
//
// A tile of CTAS = 2 is computed by a pair. Each CTA holds its 128 rows of mma_a and half of mma_b; the first CTA issues the MMAs.
#pragma once

#include <cstdint>
#include <type_traits>

#include "common/block_scaled_mma.cuh"
#include "common/cluster_launch.cuh"
#include "common/pair_copy.cuh"

namespace zoo {

constexpr int LANES = 128, EPILOGUE_WARPS = 4, THREADS = 256, TENSOR_MEMORY_COLUMNS = 512, RESPONSES = 2;

// A stage holds a K block of each operand: 128 bytes of every row. A K step is the columns of K that one tcgen05.mma multiplies.
constexpr int K_BLOCK_BYTES = 128, K_STEPS = 4;
constexpr int STAGES_BYTES = 226 * 1024;  // of shared memory, for all stages: 1 KiB is left for the rest of a tile
// Scales come in tiles of 128 rows x 4 scales.
constexpr int SCALE_TILE_ROWS = 128, SCALE_TILE_COLUMNS = 4, SCALE_TILE_BYTES = 512;

//                    elements a K block    elements a K step    scales a K step    scale tiles a K block
//     mxfp8          128                   32                   1                  1
//     mxfp4          256                   64                   2                  2
//     nvfp4          256                   64                   4                  4
//
// MXFP4 weights of MXFP8 tokens use Mxfp8Mma: the copy engine pads 16 elements of 4 bits to 16 bytes.
template <MmaKind MMA_, int STEP_ELEMENTS_, int SCALE_BLOCK_, bool UE8M0_>
struct OperandFormat {
    static constexpr MmaKind MMA = MMA_;
    static constexpr bool UE8M0 = UE8M0_;
    static constexpr int STEP_ELEMENTS = STEP_ELEMENTS_, K_BLOCK_ELEMENTS = K_STEPS * STEP_ELEMENTS;
    static constexpr int SCALE_BLOCK = SCALE_BLOCK_, STEP_SCALES = STEP_ELEMENTS / SCALE_BLOCK;
    static constexpr int SCALE_TILES = K_STEPS * STEP_SCALES / SCALE_TILE_COLUMNS;
};
using Mxfp8Mma = OperandFormat<MmaKind::mxf8f6f4, 32, 32, true>;
using Mxfp4Mma = OperandFormat<MmaKind::mxf4, 64, 32, true>;
using Nvfp4Mma = OperandFormat<MmaKind::mxf4nvf4, 64, 16, false>;

// Bytes of a weight row's K block, as barriers count them: padding does not count. `types` are bits of the instruction descriptor.
template <class Format>
__device__ __forceinline__ int weight_row_bytes(uint32_t types) {
    return Format::MMA == MmaKind::mxf8f6f4 && (types >> 10 & 7) == TYPE_E2M1_IN_8_BITS ? K_BLOCK_BYTES / 2 : K_BLOCK_BYTES;
}

template <class Format_, int CTAS_, int COLUMNS_, bool SWAPPED_, int STAGES_>
struct BlockScaledTile {
    using Format = Format_;
    static constexpr int CTAS = CTAS_, COLUMNS = COLUMNS_, STAGES = STAGES_;
    static constexpr bool SWAPPED = SWAPPED_;
    static constexpr int MMA_A_ROWS = LANES * CTAS, MMA_B_ROWS = COLUMNS / CTAS;  // of all CTAs; of one CTA
    static constexpr int TOKENS = SWAPPED ? COLUMNS : MMA_A_ROWS, WEIGHTS = SWAPPED ? MMA_A_ROWS : COLUMNS;
    static constexpr int MMA_B_SCALE_TILES = (COLUMNS + SCALE_TILE_ROWS - 1) / SCALE_TILE_ROWS;  // of MMA operand B
    static constexpr int SCALE_BUFFERS = 2, SCALE_COLUMNS = 4 * Format::SCALE_TILES * (1 + MMA_B_SCALE_TILES);
    static constexpr int FIRST_SCALE_COLUMN = TENSOR_MEMORY_COLUMNS - SCALE_BUFFERS * SCALE_COLUMNS;
    static constexpr int SECOND_SUMS = (FIRST_SCALE_COLUMN / 2 >= COLUMNS ? COLUMNS : FIRST_SCALE_COLUMN - COLUMNS) / 32 * 32;
    static constexpr bool OVERLAPPED = SECOND_SUMS < COLUMNS;
    // Columns of sums that a thread reads at a time. An MMA computes whole chunks.
    static constexpr int CHUNK = SWAPPED ? 16 : 32;
    static_assert(CHUNK % (16 * CTAS) == 0);
    // K blocks of constant weights that are copied before the previous kernel has ended. With many tokens, more would delay the first tokens.
    static constexpr int WEIGHTS_AHEAD = SWAPPED ? STAGES : 3;
    static_assert(WEIGHTS_AHEAD <= STAGES);
    static constexpr int SCALE_BYTES = Format::SCALE_TILES * SCALE_TILE_BYTES;  // of 128 rows of a K block

    struct alignas(1024) Stage {
        uint8_t mma_a[LANES * K_BLOCK_BYTES], mma_b[MMA_B_ROWS * K_BLOCK_BYTES];
    };
    struct alignas(128) ScaleStage {
        uint8_t mma_a[SCALE_BYTES], mma_b[MMA_B_SCALE_TILES][SCALE_BYTES];
    };
    // One fewer where STAGES stages of scales do not fit, as in pairs of nvfp4.
    static constexpr int SCALE_STAGES = STAGES * int(sizeof(Stage) + sizeof(ScaleStage)) <= STAGES_BYTES ? STAGES : STAGES - 1;

    Stage stages[STAGES];
    ScaleStage scales[SCALE_STAGES];
    LaunchAnswer responses[RESPONSES];
    Barrier full[STAGES], empty[STAGES], sums_full[2], sums_empty[2], response_full[RESPONSES], response_empty[RESPONSES];
    uint32_t tensor_memory;

    static_assert(sizeof(Stage) == (LANES + MMA_B_ROWS) * K_BLOCK_BYTES && SECOND_SUMS > 0);

    // A whole warp calls this, with one lane for each stage. `readers` are the warps that read a response.
    __device__ __forceinline__ void initialise_barriers(int readers) {
        initialise_each(full, 1 + CTAS);
        initialise_each(empty, 1);
        initialise_each(sums_full, 1);
        initialise_each(sums_empty, EPILOGUE_WARPS * CTAS);
        initialise_each(response_full, 1);
        initialise_each(response_empty, readers);
    }

    // The MMA warp calls this before it multiplies a matrix's last K block, which has fewer columns than a K block.
    __device__ __forceinline__ void prepare_part(Stage&, int) {}

   private:
    template <int COUNT>
    __device__ __forceinline__ static void initialise_each(Barrier (&barriers)[COUNT], int arrivals) {
        static_assert(COUNT <= 32);
        const int lane = threadIdx.x % 32;
        if (lane < COUNT) initialise(&barriers[lane], arrivals);
    }
};

template <MmaKind KIND>
using MmaFormat =
    std::conditional_t<KIND == MmaKind::mxf8f6f4, Mxfp8Mma, std::conditional_t<KIND == MmaKind::mxf4, Mxfp4Mma, Nvfp4Mma>>;

// A K block's stage of elements and stage of scales. The barriers are those of the stage of elements.
template <class Tile>
struct BlockRing : Ring<Tile::STAGES> {
    static constexpr uint32_t FEWER = Tile::STAGES - Tile::SCALE_STAGES;
    uint32_t scale_index = 0;

    __device__ __forceinline__ uint32_t scale_stage() const { return FEWER == 0 ? this->stage : scale_index; }

    __device__ __forceinline__ void advance() {
        Ring<Tile::STAGES>::advance();
        if constexpr (FEWER > 0) scale_index = scale_index + 1 == Tile::SCALE_STAGES ? 0 : scale_index + 1;
    }

    // Waits until the MMAs have read the K block whose scales this K block overwrites: SCALE_STAGES before.
    __device__ __forceinline__ void wait_for_empty_scales(Tile& tile) const {
        const bool wraps = this->stage + FEWER >= Tile::STAGES;
        wait(&tile.empty[this->stage + FEWER - (wraps ? Tile::STAGES : 0)], this->parity ^ !wraps);
    }
};

// The tile of a variant of a table.
template <class V>
using TileOf = BlockScaledTile<MmaFormat<MmaKind(V::KIND)>, V::CTAS, V::COLUMNS, V::SWAPPED != 0, V::STAGES>;

}  // namespace zoo
