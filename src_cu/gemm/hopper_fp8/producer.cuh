// The producer warps of an fp8b128 GEMM, which fill the ring of stages: the first warp copies elements, the others load scales. Included by all
// kernels of this family except k_grouped.
#pragma once

#include <cstdint>

#include "common/mbarrier.cuh"
#include "gemm/hopper_fp8/operands.cuh"
#include "gemm/hopper_fp8/tile.cuh"
#include "gemm/schedule/tile_schedule.cuh"

namespace zoo {

// The copying thread loads all K blocks of its CTA. If the schedule is WARP_COLLECTIVE, its whole warp calls this, and the other lanes only
// call next(). The weights of the first `weights_ahead` K blocks have been loaded already.
template <class Tile, class Schedule, class Operands>
__device__ __forceinline__ void load_elements(Tile& tile, Schedule schedule, const Operands& operands, int lane,
                                              int weights_ahead) {
    Ring<Tile::STAGES> ring;
    for (Work work; schedule.next(work);) {
        if (WarpCollective<Schedule> && lane > 0) continue;
        for (int block = work.first_block; block < work.end_block; block++, ring.advance()) {
            tile.wait_until_empty(ring);
            if (weights_ahead > 0)
                weights_ahead--;
            else
                operands.load_weights(tile, ring.stage, work, block);
            operands.load_tokens(tile, ring.stage, work, block);
        }
    }
}

// Loads that a pipeline may issue before the previous kernel has ended.
struct EarlyLoads {
    bool tokens = false;   // to L2, which that kernel's stores also reach: always allowed, faster for few tokens
    bool weights = false;  // to the ring of stages: allowed if the caller promises that B is constant
};

// The thread that has initialised the ring calls this.
template <class Tile, class Schedule, class Operands>
__device__ __forceinline__ void load_weights_ahead(Tile& tile, Schedule schedule, const Operands& operands) {
    int stage = 0;
    for (Work work; stage < Tile::WEIGHTS_AHEAD && schedule.next(work);)
        for (int block = work.first_block; block < work.end_block && stage < Tile::WEIGHTS_AHEAD; block++, stage++)
            operands.load_weights(tile, stage, work, block);
}

// All producer warps call this. Each CTA of a row of tiles prefetches other K blocks of its tokens.
template <class Tile, class Schedule, class Operands>
__device__ __forceinline__ void prefetch_tokens(const Schedule& schedule, const Operands& operands, const Work& work) {
    const int thread = threadIdx.x - Tile::MATH_THREADS;
    if (thread < 0) return;
    for (int block = work.first_block + work.weight / Tile::WEIGHTS; block < work.end_block; block += schedule.columns)
        operands.prefetch_tokens(work, block, thread, Tile::THREADS - Tile::MATH_THREADS);
}

// All scale warps call this, where a bulk copy can bring a K block's scales of A, from `scales` on. The first warp issues the copy, the last warp
// loads the scales of B. This saves issue slots for promotion.
template <bool ANY_E8M0, class Tile, class Operands>
__device__ __forceinline__ void copy_scales(Tile& tile, Ring<Tile::STAGES>& ring, const Operands& operands, const Work& work,
                                            const uint8_t* scales, int thread) {
    constexpr int AHEAD = ScaleReader<ANY_E8M0>::AHEAD;
    static_assert(Tile::SCALE_THREADS >= 64 && Tile::WEIGHT_SCALES <= 32);
    const int lane = thread % 32;
    const bool is_weight = thread >= Tile::SCALE_THREADS - 32 && lane < Tile::WEIGHT_SCALES;
    ScaleReader<ANY_E8M0> weight;
    if (is_weight) operands.begin_weight(weight, work, lane);
    weight.read(work.end_block - work.first_block);
    for (int first = work.first_block; first < work.end_block; first += AHEAD) {
        weight.read(work.end_block - first - AHEAD);
#pragma unroll
        for (int ahead = 0; ahead < AHEAD; ahead++) {
            if (first + ahead == work.end_block) break;
            Barrier* full = &tile.full[ring.stage];
            tile.wait_until_empty(ring);
            if (is_weight) tile.weight_scales[ring.stage][lane] = weight.of(ahead);
            __syncwarp();
            if (thread == 0) {
                arrive_expecting_bytes(full, Tile::TOKENS * 4);
                load_bytes(tile.token_scales[ring.stage], scales, Tile::TOKENS * 4, full);
                scales += operands.a_scales.block_stride;
            } else if (lane == 0) {
                arrive(full);
            }
            ring.advance();
        }
    }
}

template <bool ANY_E8M0, class Tile, class Schedule, class Operands>
__device__ __forceinline__ void load_scales(Tile& tile, Schedule schedule, const Operands& operands, int thread) {
    constexpr int AHEAD = ANY_E8M0 ? Tile::E8M0_AHEAD : ScaleReader<ANY_E8M0>::AHEAD, THREADS = Tile::SCALE_THREADS;
    constexpr int ROUNDS = (Tile::TOKENS + Tile::WEIGHT_SCALES + THREADS - 1) / THREADS;
    // Row `round * THREADS + thread`: tokens come first, then weights, then rows that do not exist.
    auto is_token = [&](int round) { return (round + 1) * THREADS <= Tile::TOKENS || round * THREADS + thread < Tile::TOKENS; };
    auto is_weight = [&](int round) {
        const int row = round * THREADS + thread;
        return !is_token(round) && row < Tile::TOKENS + Tile::WEIGHT_SCALES;
    };
    Ring<Tile::STAGES> ring;
    for (Work work; schedule.next(work);) {
        if (const uint8_t* scales = operands.token_scales_to_copy(work)) {
            copy_scales<ANY_E8M0>(tile, ring, operands, work, scales, thread);
            continue;
        }
        ScaleReader<ANY_E8M0, AHEAD> rows[ROUNDS];
#pragma unroll
        for (int round = 0; round < ROUNDS; round++) {
            const int row = round * THREADS + thread;
            if (is_token(round)) operands.begin_token(rows[round], work, row);
            if (is_weight(round)) operands.begin_weight(rows[round], work, row - Tile::TOKENS);
            rows[round].read(work.end_block - work.first_block);
        }
        for (int first = work.first_block; first < work.end_block; first += AHEAD) {
#pragma unroll
            for (int round = 0; round < ROUNDS; round++) rows[round].read(work.end_block - first - AHEAD);
#pragma unroll
            for (int ahead = 0; ahead < AHEAD; ahead++) {
                if (first + ahead == work.end_block) break;
                tile.wait_until_empty(ring);
#pragma unroll
                for (int round = 0; round < ROUNDS; round++) {
                    const int row = round * THREADS + thread;
                    if (is_token(round)) tile.token_scales[ring.stage][row] = rows[round].of(ahead);
                    if (is_weight(round)) tile.weight_scales[ring.stage][row - Tile::TOKENS] = rows[round].of(ahead);
                }
                __syncwarp();
                if (thread % 32 == 0) arrive(&tile.full[ring.stage]);
                ring.advance();
            }
        }
    }
}

// All scale warps call this. Each thread loads the scales of some rows, and waits for memory, which the copying warp must not do. A second loop
// is for ue8m0 scales, so that the f32 loop has no instruction for them.
template <class Tile, class Schedule, class Operands>
__device__ __forceinline__ void load_scales(Tile& tile, Schedule schedule, const Operands& operands, int thread) {
    if (any_e8m0(operands))
        load_scales<true>(tile, schedule, operands, thread);
    else
        load_scales<false>(tile, schedule, operands, thread);
}

// Replaces load_scales() where tokens are the columns of wgmma: a thread has some tokens and all scales of B, and stores their products.
template <bool ANY_E8M0, class Tile, class Schedule, class Operands>
__device__ __forceinline__ void load_scale_products(Tile& tile, Schedule schedule, const Operands& operands, int thread) {
    constexpr int AHEAD = ScaleReader<ANY_E8M0>::AHEAD, THREADS = Tile::SCALE_THREADS, ENTRIES = Tile::WEIGHT_SCALES;
    constexpr int ROUNDS = (Tile::TOKENS + THREADS - 1) / THREADS;
    auto is_token = [&](int round) { return (round + 1) * THREADS <= Tile::TOKENS || round * THREADS + thread < Tile::TOKENS; };
    Ring<Tile::STAGES> ring;
    for (Work work; schedule.next(work);) {
        ScaleReader<ANY_E8M0> tokens[ROUNDS], weights[ENTRIES];
        auto read = [&](int left) {
#pragma unroll
            for (int round = 0; round < ROUNDS; round++) tokens[round].read(left);
#pragma unroll
            for (int entry = 0; entry < ENTRIES; entry++) weights[entry].read(left);
        };
#pragma unroll
        for (int round = 0; round < ROUNDS; round++)
            if (is_token(round)) operands.begin_token(tokens[round], work, round * THREADS + thread);
#pragma unroll
        for (int entry = 0; entry < ENTRIES; entry++) operands.begin_weight(weights[entry], work, entry);
        read(work.end_block - work.first_block);
        for (int first = work.first_block; first < work.end_block; first += AHEAD) {
            read(work.end_block - first - AHEAD);
#pragma unroll
            for (int ahead = 0; ahead < AHEAD; ahead++) {
                if (first + ahead == work.end_block) break;
                tile.wait_until_empty(ring);
#pragma unroll
                for (int round = 0; round < ROUNDS; round++)
#pragma unroll
                    for (int entry = 0; entry < ENTRIES; entry++)
                        if (is_token(round))
                            tile.scale_product(ring.stage, entry, round * THREADS + thread) =
                                tokens[round].of(ahead) * weights[entry].of(ahead);
                __syncwarp();
                if (thread % 32 == 0) arrive(&tile.full[ring.stage]);
                ring.advance();
            }
        }
    }
}

// All producer warps call this: the first copies elements, the others load scales.
template <class Tile, class Schedule, class Operands>
__device__ __forceinline__ void load(Tile& tile, Schedule schedule, const Operands& operands, int weights_ahead = 0) {
    const int thread = threadIdx.x - Tile::MATH_THREADS;
    if (thread >= 32) {
        if constexpr (Tile::SWAPPED)
            if (any_e8m0(operands))
                load_scale_products<true>(tile, schedule, operands, thread - 32);
            else
                load_scale_products<false>(tile, schedule, operands, thread - 32);
        else
            load_scales(tile, schedule, operands, thread - 32);
    } else if (WarpCollective<Schedule> || thread == 0) {
        load_elements(tile, schedule, operands, thread, weights_ahead);
    }
}

}  // namespace zoo
