// The producer warps of a k_grouped GEMM. The first copies K blocks, the second clears columns behind the end of a group, the third loads ue8m0
// scales. The last two do not walk along groups: producer warps have 24 registers. They run several stages ahead of the math warps.
#pragma once

#include <cstdint>

#include "common/e8m0.cuh"
#include "common/tensor_copy.cuh"
#include "gemm/hopper_fp8/k_grouped/tile.cuh"
#include "gemm/hopper_fp8/operands.cuh"
#include "gemm/schedule/tile_schedule.cuh"

namespace zoo {

// A (M, K) and B (N, K), and their scales (blocks, M) and (blocks, N). The maps of scales are for f32.
template <class Tile>
struct KGroupedOperands {
    const TensorMap &a, &b, &map_of_a_scales, &map_of_b_scales;
    ScaleMatrix a_scales, b_scales;

    __device__ __forceinline__ void prefetch_maps() const {
        prefetch(a);
        prefetch(b);
        prefetch(map_of_a_scales);
        prefetch(map_of_b_scales);
    }

    // The copying thread loads the K block that begins at column `k`. `kept` of its columns are the group's.
    __device__ __forceinline__ void load_block(Tile& tile, int stage, const Work& work, int block, int k, int kept) const {
        Barrier* landed = &tile.landed[stage];
        tile.blocks[stage] = {kept, work.token, work.weight, block};
        if (any_e8m0(*this)) arrive(&tile.requested[stage]);
        arrive_expecting_bytes(landed, Tile::TOKENS * (SCALE_BLOCK + (a_scales.are_e8m0 ? 0 : 4)) +
                                           Tile::WEIGHTS * (SCALE_BLOCK + (b_scales.are_e8m0 ? 0 : 4)));
        load_box(tile.weights[stage], b, k, work.weight, landed);
        load_box(tile.tokens[stage], a, k, work.token, landed);
        if (!a_scales.are_e8m0) load_box(tile.token_scales[stage], map_of_a_scales, work.token, block, landed);
        if (!b_scales.are_e8m0) load_box(tile.weight_scales[stage], map_of_b_scales, work.weight, block, landed);
    }

    // The ue8m0 scales that a lane loads of a K block, four in a word. All lanes of the e8m0 warp call the functions below.
    struct Words {
        uint32_t of_tokens[(Tile::TOKENS + 127) / 128], of_weights[(Tile::WEIGHTS + 127) / 128];
    };
    __device__ __forceinline__ void load_e8m0(Words& words, const typename Tile::Block& block) const {
        if (a_scales.are_e8m0) load_e8m0(words.of_tokens, a_scales, block.token, block.number);
        if (b_scales.are_e8m0) load_e8m0(words.of_weights, b_scales, block.weight, block.number);
    }
    __device__ __forceinline__ void store_as_f32(Tile& tile, int stage, const Words& words) const {
        if (a_scales.are_e8m0) store_as_f32(tile.token_scales[stage], words.of_tokens);
        if (b_scales.are_e8m0) store_as_f32(tile.weight_scales[stage], words.of_weights);
        __syncwarp();
        if (threadIdx.x % 32 == 0) arrive(&tile.landed[stage]);
    }

   private:
    // Rows of scales begin at multiples of 4 bytes. Nothing is read behind the last row.
    template <int COUNT>
    static __device__ __forceinline__ void load_e8m0(uint32_t (&words)[COUNT], const ScaleMatrix& scales, int first_row,
                                                     int block) {
        const int row = first_row + threadIdx.x % 32 * 4;
        const uint8_t* from = scales.first + block * scales.block_stride + row;
#pragma unroll
        for (int i = 0; i < COUNT; i++) {
            const int rows = scales.rows - row - i * 128;
            words[i] = 0;
            if (rows >= 4) {
                words[i] = read_scale(from + i * 128, false);
            } else {
#pragma unroll 1
                for (int byte = 0; byte < rows; byte++) words[i] |= read_scale(from + i * 128 + byte, true) << byte * 8;
            }
        }
    }
    template <int ROWS, int COUNT>
    static __device__ __forceinline__ void store_as_f32(float (&to)[ROWS], const uint32_t (&words)[COUNT]) {
#pragma unroll
        for (int i = 0; i < COUNT; i++) {
            const int row = threadIdx.x % 32 * 4 + i * 128;
            const uint32_t four = words[i];
            if (row < ROWS)
                *reinterpret_cast<float4*>(to + row) = make_float4(e8m0_value(four & 255), e8m0_value(four >> 8 & 255),
                                                                   e8m0_value(four >> 16 & 255), e8m0_value(four >> 24));
        }
    }
};

// Loads a K block and its scales, one for each row of A and B.
template <class Operands, class Tile>
concept LoadsKBlocksOf = requires(const Operands& operands, Tile& tile, const Work& work) {
    operands.prefetch_maps();
    operands.load_block(tile, 0, work, 0, 0, 0);
};

// All producer warps call this: the copying warp, the clearing warp, the e8m0 warp.
template <class Tile, class Schedule>
__device__ __forceinline__ void load(Tile& tile, Schedule schedule, const KGroupedOperands<Tile>& operands) {
    const int thread = threadIdx.x - Tile::MATH_THREADS;
    Ring<Tile::STAGES> ring;
    if (thread == 0) {
        for (Work work; schedule.next(work);) {
            int block = work.first_block;
            for (int k = work.first_k; k < work.end_k; k += SCALE_BLOCK, block++, ring.advance()) {
                tile.wait_until_empty(ring);
                operands.load_block(tile, ring.stage, work, block, k, min(SCALE_BLOCK, work.end_k - k));
            }
        }
        tile.wait_until_empty(ring);
        tile.blocks[ring.stage] = {Tile::NO_MORE, 0, 0, 0};
        if (any_e8m0(operands)) arrive(&tile.requested[ring.stage]);
        arrive(&tile.landed[ring.stage]);
    } else if (thread / 32 == 1) {
        for (;; ring.advance()) {
            wait(&tile.landed[ring.stage], ring.parity);
            const int kept = tile.blocks[ring.stage].kept;
            if (kept == Tile::NO_MORE) break;
            if (kept < SCALE_BLOCK) tile.clear(ring.stage, kept);
            __syncwarp();  // all lanes have read `kept`
            if (thread % 32 == 0) arrive(&tile.full[ring.stage]);
        }
    } else if (thread / 32 == 2 && any_e8m0(operands)) {
        typename KGroupedOperands<Tile>::Words words;
        for (int before = -1;; before = ring.stage, ring.advance()) {
            wait(&tile.requested[ring.stage], ring.parity);
            const typename Tile::Block block = tile.blocks[ring.stage];
            const typename KGroupedOperands<Tile>::Words old = words;
            if (block.kept != Tile::NO_MORE) operands.load_e8m0(words, block);
            if (before >= 0) operands.store_as_f32(tile, before, old);
            if (block.kept == Tile::NO_MORE) break;
        }
        if (thread % 32 == 0) arrive(&tile.landed[ring.stage]);
    }
}

}  // namespace zoo
