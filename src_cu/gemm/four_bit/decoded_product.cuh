// A product with 4-bit weights and many tokens, put together: persistent CTAs, whose warpgroups have a role each. What is added up, and in
// which order, is what products from registers add up: after each 256 of K partial sums leave the tensor cores, or after 128, times the
// tokens' scales, or never.
//
//     copying thread    ... t8 | finds tile u, says so | u0 u1 u2 ...
//     decoders          ... t8 u0 u1 u2 ...
//     warpgroup 0       ... t78 ####pp####pp stores t    u01 ####pp####pp         # tensor cores: 64 tokens, then 64 more
//     warpgroup 1           ... t78 ####pp####pp stores t    u01 ####pp####pp     p promotion
#pragma once

#include <cstdint>

#include "common/dependent_launch.cuh"
#include "common/registers.cuh"
#include "gemm/four_bit/decode.cuh"
#include "gemm/four_bit/finish_rows.cuh"

namespace zoo {

template <class Tile, class Order>
struct DecodedProduct {
    static constexpr int SUMS = Tile::SUMS, WAVES = Tile::WAVES, STAGES_A_TURN = Tile::STAGES_A_PROMOTION;
    static constexpr bool PROMOTED = Tile::PROMOTION != Promotion::never;
    using Staged = StagedPieces<Tile::SCALED ? 2 : 4>;

    Tile tile;
    Staged staged[Tile::MATH_WARPS];

    // Each role makes its own order: nothing of it is alive where registers change hands.
    template <class Operands, class Result>
    __device__ __forceinline__ void run(const auto& make_order, const Operands& operands, const IndexedRows&, const Result& d) {
        let_next_kernel_launch();
        tile.initialise();
        if (threadIdx.x == 0) prefetch(operands.a);
        operands.clear_missing_tokens(tile);
        __syncthreads();
        wait_for_previous_kernel();

        const int role = warpgroup_index() - Tile::WARPGROUPS;
        if (role > 0) {
            keep_registers<Tile::LOADER_REGISTERS>();
            const int copying = thread_index_anew() % WARPGROUP;
            if (copying < 32) {
                if (OfWarps<Order> || copying == 0) load_and_announce(tile, Order(make_order()), operands, copying);
            } else if constexpr (Tile::SCALED) {
                if (copying < 64) load_scales_of_rows(tile, Order(make_order()), operands.scales, copying - 32);
            }
            return;
        }
        Work work;  // the first; which one comes after it is announced
        if (!Order(make_order()).next(work)) return;
        const int blocks = work.end_block * PROMOTED_CHUNKS / Tile::CHUNKS;
        if (role == 0) {
            keep_registers<Tile::DECODER_REGISTERS>();
            decode_weights(tile, blocks, operands.b, d, thread_index_anew() % WARPGROUP);
        } else {
            take_registers<Tile::MATH_REGISTERS>();
            multiply_and_store(d, blocks);
        }
    }

    __device__ __forceinline__ void start(int stage, int wave, float (&sums)[SUMS], bool begins) {
        const int row = warpgroup_index() * (WAVES * WGMMA_ROWS) + wave * WGMMA_ROWS;
        const uint64_t a = matrix_descriptor(tile.tokens[stage][0] + row * 128), b = matrix_descriptor(tile.weights[stage]);
#pragma unroll
        for (int step = 0; step < 128 / WGMMA_DEPTH; step++)
            multiply<Tile::WEIGHTS>(sums, a + 2 * step, b + 2 * step, step > 0 || !begins);
    }

    // A tile, so many turns of stages whose sums are promoted together.
    __device__ __forceinline__ void multiply_promoted(Ring<Tile::STAGES>& ring, int turns, float (&sums)[WAVES][SUMS]) {
#pragma unroll
        for (int wave = 0; wave < WAVES; wave++)
#pragma unroll
            for (int j = 0; j < SUMS; j++) sums[wave][j] = 0;
#pragma unroll 1
        for (; turns > 0; turns--) {
            int stages[STAGES_A_TURN];
#pragma unroll
            for (int i = 0; i < STAGES_A_TURN; i++, ring.advance()) {
                tile.wait_until_full(ring);
                stages[i] = ring.stage;
            }
#pragma unroll
            for (int wave = 0; wave < WAVES; wave++) {
                float partial[SUMS];
                hold(partial);
                fence_registers();
#pragma unroll
                for (int i = 0; i < STAGES_A_TURN; i++) start(stages[i], wave, partial, i == 0);
                commit_multiplications();
                hold(partial);
                float scales[2];
                if constexpr (Tile::SCALED) {
                    const float* of = tile.scales.of[stages[0]][0] + (warpgroup_index() * WAVES + wave) * WGMMA_ROWS;
                    for (int h = 0; h < 2; h++) scales[h] = of[accumulator_row(2 * h, thread_index_anew())];
                }
                wait_for_multiplications<0>();
                hold(partial);
                if (wave == WAVES - 1)
#pragma unroll
                    for (int i = 0; i < STAGES_A_TURN; i++) tile.release(stages[i]);
#pragma unroll
                for (int j = 0; j < SUMS; j++)
                    sums[wave][j] = Tile::SCALED ? __fmaf_rn(partial[j], scales[j / 2 % 2], sums[wave][j])
                                                 : __fadd_rn(sums[wave][j], partial[j]);
            }
        }
    }

    // A tile whose sums are not promoted: one stage's wgmmas run while the next one is waited for.
    __device__ __forceinline__ void multiply_unpromoted(Ring<Tile::STAGES>& ring, int blocks, float (&sums)[WAVES][SUMS]) {
        int before = 0;
        auto add = [&](bool begins) {
            tile.wait_until_full(ring);
#pragma unroll
            for (int wave = 0; wave < WAVES; wave++) hold(sums[wave]);
            fence_registers();
#pragma unroll
            for (int wave = 0; wave < WAVES; wave++) start(ring.stage, wave, sums[wave], begins);
            commit_multiplications();
#pragma unroll
            for (int wave = 0; wave < WAVES; wave++) hold(sums[wave]);
            if (!begins) {
                wait_for_multiplications<1>();
                tile.release(before);
            }
            before = ring.stage;
            ring.advance();
        };
        add(true);
#pragma unroll 1
        for (blocks--; blocks > 0; blocks--) add(false);
        wait_for_multiplications<0>();
#pragma unroll
        for (int wave = 0; wave < WAVES; wave++) hold(sums[wave]);
        tile.release(before);
    }

    template <class Result>
    __device__ __forceinline__ void multiply_and_store(const Result& d, int blocks) {
        Ring<Tile::STAGES> ring;
        for (bool more = true; more;) {
            float sums[WAVES][SUMS];
            if constexpr (PROMOTED)
                multiply_promoted(ring, blocks / STAGES_A_TURN, sums);
            else
                multiply_unpromoted(ring, blocks, sums);
            more = __any_sync(0xFFFFFFFF, tile.announced[tile.slot_of_warp()].more);
            store(d, sums);
            __syncwarp();  // else ptxas takes the warp for divided, and every descriptor goes to uniform registers anew
        }
    }

    template <class Result>
    __device__ __forceinline__ void store(const Result& d, float (&sums)[WAVES][SUMS]) {
#pragma unroll
        for (int wave = 0; wave < WAVES; wave++) {
            const int slot = tile.slot_of_warp();
            const AnnouncedTile& done = tile.announced[slot];
            finish_and_store_rows(d, staged[thread_index_anew() / 32], tile.columns[slot],
                                  done.token + (thread_index_anew() / WARPGROUP * WAVES + wave) * WGMMA_ROWS, done.end_token,
                                  done.weight, sums[wave]);
        }
        tile.advance_slot_of_warp();
    }
};

}  // namespace zoo
