// The pipeline of SwiGLU GEMMs with 4-bit weights: persistent CTAs compute tile after tile while the producer loads ahead. Included by gated.cu.
//
//     warps 0 to 7     two math warpgroups dequantize and multiply, make h of gate and up, and store h in 16 bits or in e4m3
//     warp 8           one lane loads weights and tokens into stages
//     warps 9 to 11    gather tokens or copy scale128, if the kernel does either
//
// The launch chooses whether h is quantised. The end of the file chooses tile, schedule and output of a variant. gated.cu defines STORED before it
// includes this file.
#pragma once

#include <cstdint>
#include <type_traits>

#include "common/cluster.cuh"
#include "common/dependent_launch.cuh"
#include "common/registers.cuh"
#include "gemm/hopper_w4/bf16/mainloop.cuh"
#include "gemm/hopper_w4/bf16/weights.cuh"
#include "gemm/hopper_w4/gated/epilogue.cuh"
#include "gemm/hopper_w4/gated/fp8_output.cuh"
#include "gemm/hopper_w4/gated/schedule.cuh"
#include "gemm/hopper_w4/mainloop.cuh"
#include "gemm/hopper_w4/operands.cuh"
#include "gemm/hopper_w4/tile.cuh"
#include "gemm/hopper_w4/weights/stored_words.cuh"

namespace zoo {

// Multiplies a tile's 64 weight rows of this warpgroup: 32 gates and their ups.
template <class Tile>
__device__ __forceinline__ void multiply_tile(Tile& tile, Ring<Tile::STAGES>& ring, const auto& operands, const Work& work,
                                              float (&sums)[1][Tile::SUMS]) {
    const PackedMatrices& b = operands.b;
    const bool exists = work.weight / CHUNK_ROWS + warpgroup_index() < b.weight_parts;
    if constexpr (Tile::OF_BF16 && Tile::STORED) {
        StoredBf16Weights<Tile> weights(tile, operands.stored_scales, work);
        multiply_bf16(tile, ring, b.chunks, int(exists), sums, weights);
    } else if constexpr (Tile::OF_BF16) {
        PackedBf16Weights<Tile> weights(tile);
        multiply_bf16(tile, ring, b.chunks, int(exists), sums, weights);
    } else {
        multiply_needed_tokens<Tile>(work.end_token - work.token, sums[0], [&]<int TOKEN_PARTS, int COLUMNS>(auto& some_sums) {
            auto begin = [&](auto& block) {
                if constexpr (Tile::STORED) block.begin(operands.stored_scales, work);
            };
            if constexpr (Tile::SCALED) {
                multiply_promoting_every_128<TOKEN_PARTS, COLUMNS>(tile, ring, work.end_block, exists ? b.chunks : 0, some_sums,
                                                                   begin);
            } else {
                FragmentsOf<Tile> block;
                begin(block);
                multiply_promoting_every_256<TOKEN_PARTS, COLUMNS>(tile, block, ring, work.end_block, exists ? b.chunks : 0,
                                                                   some_sums);
            }
        });
    }
}

// Output: a form of Fp8Output, or NoFp8Output.
template <class Tile, class Schedule, class Output>
struct GatedPipeline {
    Tile tile;
    StagedGateUp<Tile> staged[Tile::MATH_WARPS];
    Output output;
    static_assert(!Tile::SPILLS_TO_SHARED && Tile::WARPGROUPS == 2);
    static constexpr bool HAS_FP8_OUTPUT = !std::is_same_v<Output, NoFp8Output>;
    static constexpr bool ALWAYS_QUANTISES = SharesScalesInCluster<Schedule> && !TakesBothTiles<Schedule> && !Tile::STORED;

    __device__ __forceinline__ void run(Schedule schedule, const auto& operands, const GatheredRows& gathered, const auto& result,
                                        const Fp8OutputArguments& q) {
        let_next_kernel_launch();
        tile.initialise();
        if (threadIdx.x == 0) {
            output.initialise();
            if constexpr (!Tile::GATHERS) prefetch(operands.a);
            if constexpr (Tile::STORED) prefetch(operands.stored);
        }
        operands.clear_missing_tokens(tile);
        __syncthreads();
        // The barriers of the other CTA are initialised after this.
        if constexpr (SharesScalesInCluster<Schedule>) synchronise_cluster_relaxed();
        wait_for_previous_kernel();

        if (warp_index() >= Tile::MATH_WARPS) {
            produce(tile, schedule, operands, gathered);
        } else {
            if constexpr (Tile::REALLOCATES_REGISTERS) raise_registers_to<Tile::MATH_REGISTERS>();
            Ring<Tile::STAGES> ring;
            uint32_t count = 0,
                     exchanges = 0;  // quantised tiles or double tiles; of them, those that share scales with the other CTA
            typename Output::LeftTile left;
            for (Work work; schedule.next(work);) {
                float sums[1][Tile::SUMS], h[Tile::SUMS / 2];
                staged[reread_thread_index() / 32].prefetch_factors(result, work);
                multiply_tile(tile, ring, operands, work, sums);
                activate<Tile>(result, staged[reread_thread_index() / 32], work, sums[0], h);
                if (!HAS_FP8_OUTPUT || (!ALWAYS_QUANTISES && !q.enabled())) {
                    store_h<Tile>(result, staged[reread_thread_index() / 32], work, h);
                } else if constexpr (SharesScalesInCluster<Schedule> && !TakesBothTiles<Schedule>) {
                    const bool shared = schedule.shares_scales(work);
                    output.quantise_and_store(result.sums, q, work, shared, count++, exchanges, h);
                    exchanges += shared;
                } else if constexpr (HAS_FP8_OUTPUT) {
                    if (schedule.right_follows) {
                        output.keep_left(count, h, left);
                    } else if constexpr (SharesScalesInCluster<Schedule>) {
                        const bool shared = schedule.shares_scales(work);
                        output.quantise_and_store(result.sums, q, work, schedule.is_right_tile(work), shared, count++, exchanges,
                                                  h, left);
                        exchanges += shared;
                    } else {
                        output.quantise_and_store(result.sums, q, work, schedule.is_right_tile(work), count++, h, left);
                    }
                }
                // Tells ptxas that the lanes stay together. The bf16 mainloop gains nothing by it.
                if constexpr (!Tile::OF_BF16) __syncwarp();
            }
        }
    }
};

// Optional constants of a variant.
template <class V>
constexpr bool by_cluster = requires { V::IN_CLUSTER; };
template <class V>
constexpr bool by_cluster_or_in_sequence = requires { V::IN_CLUSTER_OR_SEQUENCE; };

constexpr Promotion PROMOTION = Promotion(Variant::PROMOTION);
constexpr bool OF_BF16 = Variant::TOKEN_BYTES == 2, SCALED = PROMOTION == Promotion::every_128_scaled;
constexpr WeightFormat FORMAT = WeightFormat(Variant::FORMAT);
constexpr WeightLayout LAYOUT = STORED ? WeightLayout::stored_gate_up : WeightLayout::packed;
constexpr int GATHERING_THREADS = gathering_threads<Variant>();

// FP8 tokens and packed weights.
template <class Tile>
struct PackedFp8Tile : Tile {
    static constexpr bool REALLOCATES_REGISTERS = Tile::TOKENS > (SCALED ? 32 : 64);  // else math warps would spill 410 bytes
    static constexpr int THREADS = Tile::MATH_THREADS + (REALLOCATES_REGISTERS ? 128 : 32 + Tile::COPYING_THREADS);
    static constexpr int LOADER_REGISTERS = 88, MATH_REGISTERS = 208;  // 72 and 216 would spill a value that all warps keep
};

using Fp8Tile = FourBitTile<FORMAT, Variant::TOKENS, Variant::TOKEN_PARTS, 2, Variant::STAGES, 4, GATHERING_THREADS,
                            narrows<Variant>, PROMOTION, LAYOUT>;
using Bf16TokensTile =
    Bf16Tile<FORMAT, Variant::TOKENS, 1, Variant::STAGES, Variant::CHUNKS, GATHERING_THREADS, LAYOUT, looks_up<Variant>>;
using Fp8TokensTile = std::conditional_t<STORED, Fp8Tile, PackedFp8Tile<Fp8Tile>>;
using Tile = std::conditional_t<OF_BF16, Bf16TokensTile, Fp8TokensTile>;

using Rows = GroupRowsOrMatrix<(Variant::TOKENS == 128 && !SCALED)>;

// Which CTAs compute the tiles that share scales, and how these scales are found.
template <class V>
struct ScheduleAndOutput {
    using Schedule = DoubleTilesInSequence<Tile, GroupedScheduleFor<Tile, V::TOKENS, V::BAND, Rows>>;
    // Packed tiles of eight rows give h in e4m3 by clusters only, in cubins of their own.
    using Output = std::conditional_t<V::TOKENS == 8 && !STORED && !SCALED, NoFp8Output, Fp8Output<Tile>>;
};
template <class V>
    requires by_cluster<V>
struct ScheduleAndOutput<V> {
    using Schedule = std::conditional_t<STORED, DoubleTilesByClusterOrTiles<Tile, Rows>, DoubleTilesByCluster<Tile, Rows>>;
    using Output = Fp8OutputByCluster<Tile>;
};
template <class V>
    requires by_cluster_or_in_sequence<V>
struct ScheduleAndOutput<V> {
    using Schedule = DoubleTilesByClusterOrInSequence<Tile, GroupedScheduleFor<Tile, V::TOKENS, V::BAND, Rows>>;
    using Output = Fp8OutputByClusterOrInSequence<Tile>;
};
using Schedule = ScheduleAndOutput<Variant>::Schedule;
using Pipeline = GatedPipeline<Tile, Schedule, ScheduleAndOutput<Variant>::Output>;
constexpr int DYNAMIC_SHARED_BYTES = sizeof(Pipeline);

}  // namespace zoo
