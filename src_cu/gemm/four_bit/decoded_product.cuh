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
#include "gemm/four_bit/decode_once.cuh"
#include "gemm/four_bit/finish_rows.cuh"

namespace zoo {

template <class Tile, class Order>
struct DecodedProduct {
    static constexpr int SUMS = Tile::SUMS, WAVES = Tile::WAVES, STAGES_A_TURN = Tile::STAGES_A_PROMOTION;
    static constexpr bool PROMOTED = Tile::PROMOTION != Promotion::never;
    using Staged = StagedPieces<PROMOTED ? 2 : 4>;

    Tile tile;
    Staged staged[Tile::MATH_WARPS];

    // Each role makes its own order: nothing of it is alive where registers change hands. So it does with the space where weights
    // are decoded once, if they are.
    template <class Operands, class Result, class MakeSpace = Nothing>
    __device__ __forceinline__ void run(const auto& make_order, const Operands& operands, const IndexedRows&, const Result& d,
                                        const MakeSpace& make_space = {}) {
        let_next_kernel_launch();
        tile.initialise();
        if (threadIdx.x == 0) prefetch(operands.a);
        operands.clear_missing_tokens(tile);
        __syncthreads();
        wait_for_previous_kernel();

        const int role = warpgroup_index() - Tile::WARPGROUPS, thread = thread_index_anew() % WARPGROUP;
        if (role == (Tile::Decoding::ONCE ? 0 : 1)) {
            keep_registers<Tile::Decoding::LOADER_REGISTERS>();
            load(make_order, operands, d, thread, make_space);
            return;
        }
        Work work;  // the first; which one comes after it is announced
        if (!Order(make_order()).next(work)) return;
        const int stages = work.end_block * PROMOTED_CHUNKS / Tile::CHUNKS;
        if constexpr (!Tile::Decoding::ONCE) {
            if (role == 0) {
                keep_registers<Tile::Decoding::DECODER_REGISTERS>();
                decode_weights(tile, stages, operands.b, d, thread);
                return;
            }
        }
        take_registers<Tile::Decoding::MATH_REGISTERS>();
        if constexpr (PROMOTED)
            multiply_promoted(d, stages / STAGES_A_TURN);
        else
            multiply_never_promoted(d, stages);
    }

    // By a warpgroup, whose warps do one thing each.
    template <class Operands, class Result, class MakeSpace>
    __device__ __forceinline__ void load(const auto& make_order, const Operands& operands, const Result& d, int thread,
                                         const MakeSpace& make_space) {
        const int warp = thread / 32, lane = thread % 32;
        if (warp == 0) {
            if constexpr (Tile::Decoding::ONCE)
                load_decoded(tile, operands, make_space(), d, lane);
            else if (OfWarps<Order> || lane == 0)
                load_and_announce(tile, Order(make_order()), operands, lane);
        } else if (Tile::SCALED && warp == 1) {
            if constexpr (Tile::SCALED) load_scales_of_rows(tile, Order(make_order()), operands.scales, lane);
        } else if (warp >= 2) {
            if constexpr (Tile::Decoding::ONCE) decoder(tile, operands.b, make_space(), warp - 2).run();
        }
    }

    // `row`: the first of the warpgroup's. Asked for once, it and with it all descriptors stay in uniform registers.
    __device__ __forceinline__ void start(int stage, int row, float (&sums)[SUMS], bool begins) {
        const uint64_t a = matrix_descriptor(tile.tokens[stage][0] + row * 128), b = matrix_descriptor(tile.weights[stage]);
#pragma unroll
        for (int step = 0; step < 128 / WGMMA_DEPTH; step++)
            multiply<Tile::WEIGHTS>(sums, a + 2 * step, b + 2 * step, step > 0 || !begins);
        commit_multiplications();
    }

    // One wave of the stages that are promoted together, each a group.
    __device__ __forceinline__ void start_turn(const Ring<Tile::STAGES>& ring, int first_row, int wave, float (&partial)[SUMS]) {
        hold(partial);
        fence_registers();
        Ring<Tile::STAGES> of = ring;
#pragma unroll
        for (int i = 0; i < STAGES_A_TURN; i++, of.advance()) start(of.stage, first_row + wave * WGMMA_ROWS, partial, i == 0);
        hold(partial);
    }
    __device__ __forceinline__ void promote(const Ring<Tile::STAGES>& ring, int first_row, int wave, float (&partial)[SUMS],
                                            float (&sums)[SUMS]) {
        float scales[2];
        if constexpr (Tile::SCALED) {
            const float* of =
                tile.scales.of[ring.stage][0] + first_row + wave * WGMMA_ROWS + accumulator_row(0, thread_index_anew());
            scales[0] = of[0];
            scales[1] = of[8];
        }
        Ring<Tile::STAGES> done = ring;
        if (STAGES_A_TURN == 2 && wave == WAVES - 1) {
            wait_for_multiplications<1>();
            tile.release(done.stage);
            done.advance();
        }
        wait_for_multiplications<0>();
        hold(partial);
        if (wave == WAVES - 1) tile.release(done.stage);
#pragma unroll
        for (int j = 0; j < SUMS; j++)
            sums[j] = Tile::SCALED ? __fmaf_rn(partial[j], scales[j / 2 % 2], sums[j]) : __fadd_rn(sums[j], partial[j]);
    }
    __device__ __forceinline__ void wait_for_turn(Ring<Tile::STAGES> ring) {
#pragma unroll
        for (int i = 0; i < STAGES_A_TURN; i++, ring.advance()) tile.wait_until_full(ring);
    }
    __device__ __forceinline__ void advance_turn(Ring<Tile::STAGES>& ring) {
#pragma unroll
        for (int i = 0; i < STAGES_A_TURN; i++) ring.advance();
    }

    // All tiles, so many turns each: a tile's first wgmmas run while the one before it is stored.
    template <class Result>
    __device__ __forceinline__ void multiply_promoted(const Result& d, int turns) {
        const int first_row = warpgroup_index() * (WAVES * WGMMA_ROWS);
        Ring<Tile::STAGES> ring;
        float partial[SUMS];
        wait_for_turn(ring);
        start_turn(ring, first_row, 0, partial);
        for (;;) {
            const bool more = __any_sync(0xFFFFFFFF, tile.announced[tile.slot_of_warp()].more);
            float sums[WAVES][SUMS];
#pragma unroll
            for (int wave = 0; wave < WAVES; wave++)
#pragma unroll
                for (int j = 0; j < SUMS; j++) sums[wave][j] = 0;
            auto multiply_turn = [&](bool is_started) {
#pragma unroll
                for (int wave = 0; wave < WAVES; wave++) {
                    if (wave > 0 || !is_started) start_turn(ring, first_row, wave, partial);
                    promote(ring, first_row, wave, partial, sums[wave]);
                }
                advance_turn(ring);
            };
            multiply_turn(true);
#pragma unroll 2
            for (int left = turns - 1; left > 0; left--) {
                wait_for_turn(ring);
                multiply_turn(false);
            }
            if (!more) {
                store(d, sums);
                break;
            }
            if constexpr (!Tile::Decoding::ONCE) store(d, sums);  // there are no registers for both
            wait_for_turn(ring);
            start_turn(ring, first_row, 0, partial);
            if constexpr (Tile::Decoding::ONCE) store(d, sums);
            __syncwarp();  // else ptxas takes the warp for divided, and every descriptor goes to uniform registers anew
        }
    }

    // A tile whose sums are not promoted: one stage's wgmmas run while the next one is waited for.
    __device__ __forceinline__ void multiply_unpromoted(Ring<Tile::STAGES>& ring, int first_row, int stages,
                                                        float (&sums)[WAVES][SUMS]) {
        auto hold_all = [&] {
#pragma unroll
            for (int wave = 0; wave < WAVES; wave++) hold(sums[wave]);
        };
        Ring<Tile::STAGES> before = ring;
        auto add = [&](bool begins) {
            tile.wait_until_full(ring);
            const int stage = __shfl_sync(0xFFFFFFFF, ring.stage, 0);  // or descriptors go to uniform registers one by one
            hold_all();
            fence_registers();
#pragma unroll
            for (int wave = 0; wave < WAVES; wave++) start(stage, first_row + wave * WGMMA_ROWS, sums[wave], begins);
            hold_all();
            if (!begins) {
                wait_for_multiplications<WAVES>();
                tile.release(before.stage);
                before.advance();
            }
            ring.advance();
        };
        add(true);
#pragma unroll 2
        for (stages--; stages > 0; stages--) add(false);
        wait_for_multiplications<0>();
        hold_all();
        tile.release(before.stage);
    }

    // As multiply_promoted(): so many stages each.
    template <class Result>
    __device__ __forceinline__ void multiply_never_promoted(const Result& d, int stages) {
        const int first_row = warpgroup_index() * (WAVES * WGMMA_ROWS);
        Ring<Tile::STAGES> ring;
        for (;;) {
            float sums[WAVES][SUMS];
            multiply_unpromoted(ring, first_row, stages, sums);
            const bool more = __any_sync(0xFFFFFFFF, tile.announced[tile.slot_of_warp()].more);
            store(d, sums);
            if (!more) break;
            __syncwarp();
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
