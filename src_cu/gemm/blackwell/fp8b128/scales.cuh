// The scale producer of fp8b128: a warp makes the scale tiles that are copied to tensor memory. GEMMs of fp8b128 include it.
//
// Scales are f32 powers of two or ue8m0: one for 1 x 128 of A, and one for 128 x 128 of B. They have any strides, and no copy engine makes
// scale tiles of them. A scale block of 128 elements is a K block, so its four K steps have the same scale.
//
//     lane l      tokens l, l + 32, l + 64, l + 96: a word each of four equal bytes, together 16 of a tile's 512 bytes
//                 weights: a scale for all 128 rows, 16 equal bytes; or a scale for each 64 rows, twice 8 equal bytes;
//                          or, in k_grouped, a scale for each row, as tokens
//
// The MMAs of a K block take 256 to 512 cycles and a load about 800, so loads of AHEAD K blocks are in flight while AHEAD are written.
#pragma once

#include "common/e8m0.cuh"
#include "gemm/blackwell/schedule/tiles.cuh"

namespace zoo {

constexpr uint32_t E4M3_TYPES = TYPE_E4M3 << 7 | TYPE_E4M3 << 10;  // of both operands, in an instruction descriptor

// A scale for 1 or 128 rows, and 128 of K. Strides are in elements.
struct ScaleMatrix {
    const uint8_t* first;
    int is_ue8m0;
    int64_t group, row, block;

    __device__ __forceinline__ int64_t bytes(int64_t scales) const { return is_ue8m0 ? scales : 4 * scales; }
    __device__ __forceinline__ uint32_t load(const uint8_t* from) const {
        return is_ue8m0 ? *from : *reinterpret_cast<const uint32_t*>(from);
    }
    // Four equal ue8m0 bytes.
    __device__ __forceinline__ uint32_t word(uint32_t scale) const {
        return (is_ue8m0 ? scale : e8m0_of_power_of_two(scale)) * 0x01010101;
    }
};

// Where the scales of a tile's rows are: token_offset() and weight_offset() in elements of their ScaleMatrix, without K.
struct SquareWeightScales {
    static constexpr int WEIGHT_SCALES = 1;  // for 128 weight rows
    __device__ __forceinline__ int64_t weight_offset(const ScaleMatrix& scales, const TileWork& work, int row) const {
        return work.group * scales.group + int64_t((work.column + row) / SCALE_TILE_ROWS) * scales.row;
    }
    __device__ __forceinline__ int first_scale_block(const TileWork&) const { return 0; }
};

// Tokens in sequence, in slots of slot_rows rows if that is not 0.
struct SequentialTokenScales : SquareWeightScales {
    int slot_rows = 0;
    __device__ __forceinline__ explicit SequentialTokenScales(int slot_rows) : slot_rows(slot_rows) {}
    __device__ __forceinline__ int64_t token_offset(const ScaleMatrix& scales, const TileWork& work, int token) const {
        return work.group * scales.group + int64_t(work.token - work.group * slot_rows + token) * scales.row;
    }
};

template <class Tile, class Offsets>
struct Fp8b128ScaleLoader {
    static constexpr int AHEAD = 4, TOKENS = 4, EACH = Offsets::WEIGHT_SCALES;
    static constexpr int WEIGHTS = EACH * (Tile::SWAPPED ? 1 : Tile::MMA_B_SCALE_TILES);
    static_assert(Tile::Format::SCALE_TILES == 1 && (!Tile::SWAPPED || Tile::MMA_B_SCALE_TILES == 1));

    ScaleMatrix a, b;
    Offsets offsets;

    __device__ __forceinline__ void prefetch_maps() const {}

    // A whole warp of each CTA calls this.
    __device__ __forceinline__ void load(Tile& tile, BlockRing<Tile>& ring, const TileWork& work, int rank) const {
        const int lane = threadIdx.x % 32;
        const uint8_t *token[TOKENS], *weight[WEIGHTS];  // null: no such row
        const int64_t token_step = a.bytes(a.block), weight_step = b.bytes(b.block);
        const int first_block = offsets.first_scale_block(work);
#pragma unroll
        for (int i = 0; i < TOKENS; i++) {
            const int row = (Tile::SWAPPED ? 0 : rank * LANES) + 32 * i + lane;
            const int64_t offset = row < work.rows ? offsets.token_offset(a, work, row) : -1;
            token[i] = offset < 0 ? nullptr : a.first + a.bytes(offset) + first_block * token_step;
        }
#pragma unroll
        for (int i = 0; i < WEIGHTS; i++) {
            const int row = ((Tile::SWAPPED ? rank : 0) * EACH + i) * (SCALE_TILE_ROWS / EACH) + (EACH == 4 ? lane : 0);
            weight[i] = row >= work.columns ? nullptr
                                            : b.first + b.bytes(offsets.weight_offset(b, work, row)) + first_block * weight_step;
        }
        constexpr int EACH_BLOCK = TOKENS + WEIGHTS, ALL = AHEAD * EACH_BLOCK;
        uint32_t now[ALL] = {}, next[ALL];
#pragma unroll 1
        for (int first = work.first_block - AHEAD; first < work.end_block; first += AHEAD) {
#pragma unroll
            for (int i = 0; i < ALL; i++) {
                const int block = first + AHEAD + i / EACH_BLOCK, which = i % EACH_BLOCK;
                const uint8_t* from = which < TOKENS ? token[which % TOKENS] : weight[which < TOKENS ? 0 : which - TOKENS];
                const ScaleMatrix& scales = which < TOKENS ? a : b;
                next[i] = block < work.end_block && from != nullptr
                              ? scales.load(from + block * (which < TOKENS ? token_step : weight_step))
                              : 0;
            }
            // Every pass writes the first registers and shifts the others down, so that the code for a K block exists once.
#pragma unroll 1
            for (int block = max(first, work.first_block); block < min(first + AHEAD, work.end_block); block++) {
                write(tile, ring, now, block, work);
                ring.advance();
#pragma unroll
                for (int i = 0; i < ALL - EACH_BLOCK; i++) now[i] = now[i + EACH_BLOCK];
            }
#pragma unroll
            for (int i = 0; i < ALL; i++) now[i] = next[i];
        }
    }

   private:
    // Writes the scale tiles of a K block. `scales` starts with the block's token scales, then its weight scales.
    template <int ALL>
    __device__ __forceinline__ void write(Tile& tile, const BlockRing<Tile>& ring, const uint32_t (&scales)[ALL], int block,
                                          const TileWork& work) const {
        const int lane = threadIdx.x % 32;
        typename Tile::ScaleStage& stage = tile.scales[ring.scale_stage()];
        ring.wait_for_empty_scales(tile);
        uint4* tokens = reinterpret_cast<uint4*>(Tile::SWAPPED ? stage.mma_b[0] : stage.mma_a);
        tokens[lane] = {a.word(scales[0]), a.word(scales[1]), a.word(scales[2]), a.word(scales[3])};
#pragma unroll
        for (int j = 0; j < WEIGHTS; j += EACH) {
            uint32_t words[4];
#pragma unroll
            for (int k = 0; k < 4; k++) words[k] = b.word(scales[TOKENS + j + k * EACH / 4]);
            reinterpret_cast<uint4*>(Tile::SWAPPED ? stage.mma_a : stage.mma_b[j / EACH])[lane] = {words[0], words[1], words[2],
                                                                                                   words[3]};
        }
        let_copies_see_shared_memory();
        __syncwarp();
        if (elected()) publish_at_first<Tile::CTAS>(&tile.full[ring.stage]);
        __syncwarp();
    }
};

}  // namespace zoo
