// The operands of GEMMs with 4-bit weights: their sizes and formats, where they are in global memory, and the warps that copy them to stages.
// All kernels of hopper_w4 include this header.
//
//     packed weights     a bulk copy for each weight part: its chunks along K are contiguous in global memory
//     tokens             a tensor copy, or copies by threads where an index gathers rows of A
//     scale128 of A      copies by a warp, or by the threads that gather
#pragma once

#include <cstdint>
#include <type_traits>

#include "common/async_copy.cuh"
#include "common/mbarrier.cuh"
#include "common/nothing.cuh"
#include "common/registers.cuh"
#include "common/tensor_copy.cuh"
#include "gemm/schedule/tile_schedule.cuh"

namespace zoo {

// A chunk of weights has 64 weight rows and 64 columns of K. A K block has four chunks, 256 columns. A stage
// holds a K block, or half of one in the unpromoted and dequantized kernels.
constexpr int CHUNK_ROWS = 64, CHUNK = 64, CODE_BYTES = CHUNK_ROWS * CHUNK / 2;
constexpr int PROMOTED_CHUNKS = 4;  // chunks of a K block. With scale128, sums are promoted after each half of them

// Tables name the values of the constants FORMAT and PROMOTION.
enum class WeightFormat { nvfp4, mxfp4 };
enum class WeightLayout { packed, stored, stored_gate_up };  // stored: as in a checkpoint, hopper_w4/weights/stored.cuh

// When the tensor core's partial sums are added to f32 registers, because the tensor core keeps only 13 fraction bits:
enum class Promotion {
    every_256,         // after each K block
    every_128_scaled,  // after each half of a K block, times scale128 of A
    never,             // sums stay in the tensor core along all of K
    if_asked,          // every_256 or never, by the kernel parameter `promotes`
};

// Promotes after each K block: the first wgmma of a K block overwrites the partial sums, which are then added to f32 sums.
struct PromoteAlways {
    __device__ __forceinline__ PromoteAlways(bool = true) {}
    __device__ __forceinline__ bool overwrites() const { return true; }
    __device__ __forceinline__ void end_block() {}
    __device__ __forceinline__ float added(float sum, float partial) const { return __fadd_rn(sum, partial); }
};

// Promotes after each K block if the caller has `asked`. Otherwise partial sums grow along all of K, and replace the f32 sums after each K block.
// sum * kept + partial, one fma, does either: `kept` is 1 or 0. So one loop serves both cases.
struct PromoteIfAsked {
    bool asked, begin = true;
    float kept;

    __device__ __forceinline__ PromoteIfAsked(bool asked) : asked(asked), kept(asked) {}
    __device__ __forceinline__ bool overwrites() const { return begin; }
    __device__ __forceinline__ void end_block() { begin = asked; }
    __device__ __forceinline__ float added(float sum, float partial) const { return __fmaf_rn(sum, kept, partial); }
};

// Packed B: each group has `weight_parts` of 64 weight rows, each part has `chunks` chunks along K, and chunks are contiguous.
struct PackedMatrices {
    const uint8_t* first;
    int weight_parts, chunks;
};

// scale128 of A. Strides count scales. `row` includes the slots of earlier groups. So group_stride is the distance between the scales of two
// neighbouring groups, minus row_stride times the rows of a slot.
struct TokenScales {
    const float* first;
    int64_t row_stride, block_stride, group_stride;
    int blocks;

    __device__ __forceinline__ const float* of(int row, int group, int block) const {
        return first + row * row_stride + group * group_stride + block * block_stride;
    }
};

// Empty where A has no scale128.
template <class Tile>
using TokenScalesOf = std::conditional_t<Tile::SCALED, TokenScales, Nothing>;
template <class Tile>
__device__ __forceinline__ TokenScalesOf<Tile> token_scales(const float* first, int64_t row_stride, int64_t block_stride,
                                                            int64_t group_stride, int blocks) {
    if constexpr (Tile::SCALED)
        return {first, row_stride, block_stride, group_stride, blocks};
    else
        return {};
}

template <class Tile>
constexpr bool PROMOTES_IF_ASKED = requires { requires Tile::PROMOTION == Promotion::if_asked; };

template <class Tile>
struct FourBitOperands {
    const TensorMap& a;
    PackedMatrices b;
    int box_rows;  // rows of a tensor copy's box
    TokenScalesOf<Tile> scales;
    std::conditional_t<PROMOTES_IF_ASKED<Tile>, PromoteIfAsked, PromoteAlways> promotion;

    // One thread copies a stage: CHUNKS chunks, from `chunk` on. Chunks after the last are not copied; tokens become zeros there.
    __device__ __forceinline__ void load(Tile& tile, int stage, const Work& work, int chunk) const {
        const int chunks = max(min(b.chunks - chunk, Tile::CHUNKS), 0), first = work.weight / CHUNK_ROWS;
        const int parts = min(b.weight_parts - first, Tile::WEIGHT_PARTS);
        const uint32_t bytes = chunks * Tile::CHUNK_BYTES;
        Barrier* full = &tile.full[stage];
        arrive_expecting_bytes(full, parts * bytes + (Tile::GATHERS ? 0 : Tile::LINES * box_rows * 128));
        const uint8_t* from = b.first + ((int64_t(work.group) * b.weight_parts + first) * b.chunks + chunk) * Tile::CHUNK_BYTES;
        if (bytes > 0)
            for (int i = 0; i < parts; i++)
                load_bytes(tile.weights[stage][i], from + int64_t(i) * b.chunks * Tile::CHUNK_BYTES, bytes, full);
        load_tokens(tile, stage, work, chunk);
    }
    __device__ __forceinline__ void load_tokens(Tile& tile, int stage, const Work& work, int chunk) const {
        if constexpr (!Tile::GATHERS)
#pragma unroll
            for (int line = 0; line < Tile::LINES; line++)
                load_box(tile.tokens[stage][line], a, (chunk / Tile::CHUNKS_PER_LINE + line) * (Tile::CHUNKS_PER_LINE * CHUNK),
                         work.token, &tile.full[stage]);
    }

    // All threads clear rows that no box fills, and then synchronise. Their products are not stored. But initcheck and the emulator report
    // reads of shared memory that was never written.
    __device__ __forceinline__ void clear_missing_tokens(Tile& tile) const {
        if constexpr (!Tile::GATHERS) {
            for (int piece = box_rows * 8 + threadIdx.x; piece < Tile::TOKENS * 8; piece += Tile::THREADS)
#pragma unroll
                for (int stage = 0; stage < Tile::STAGES; stage++)
#pragma unroll
                    for (int line = 0; line < Tile::LINES; line++)
                        reinterpret_cast<uint4*>(tile.tokens[stage][line])[piece] = uint4{};
            let_copies_see_shared_memory();
        }
    }
};

// The producer: one thread, or a warp where next() of the schedule needs all lanes.
template <class Tile, class Schedule>
__device__ __forceinline__ void load_operands(Tile& tile, Schedule schedule, const auto& operands, int lane) {
    Ring<Tile::STAGES> ring;
    for (Work work; schedule.next(work);) {
        if (WarpCollective<Schedule> && lane > 0) continue;
        for (int chunk = work.first_block * Tile::CHUNKS; chunk < work.end_block * Tile::CHUNKS; chunk += Tile::CHUNKS) {
            tile.wait_until_empty(ring);
            operands.load(tile, ring.stage, work, chunk);
            ring.advance();
        }
    }
}

// A producer warp copies scale128 of a tile's tokens, stage by stage. Rows and scale blocks that do not exist get zeros.
template <class Tile, class Schedule>
__device__ __forceinline__ void load_token_scales(Tile& tile, Schedule schedule, const TokenScales& scales, int lane) {
    Ring<Tile::STAGES> ring;
    for (Work work; schedule.next(work);) {
        for (int chunk = work.first_block * Tile::CHUNKS; chunk < work.end_block * Tile::CHUNKS; chunk += Tile::CHUNKS) {
            tile.wait_until_empty(ring);
#pragma unroll
            for (int half = 0; half < 2; half++) {
                const int block = chunk / Tile::CHUNKS_PER_LINE + half;
                const int rows = block < scales.blocks ? work.end_token - work.token : 0;
                const float* place = scales.of(work.token + lane, work.group, block);
                const uint32_t to = shared_address(tile.scales.of[ring.stage][half]);
#pragma unroll
                for (int token = lane; token < Tile::TOKENS; token += 32, place += 32 * scales.row_stride)
                    copy_4_bytes(to + token * sizeof(float), place, token < rows);
            }
            arrive_after_copies(&tile.full[ring.stage]);
            ring.advance();
        }
        __syncwarp();
    }
}

// How many threads gather tokens, if the table's constant GATHERS is 1. More threads would leave two CTAs of 32 bf16 tokens too few registers.
template <class V>
constexpr int gathering_threads() {
    if constexpr (requires { requires V::GATHERS != 0; }) return V::CTAS > 1 ? 32 : 96;
    return 0;
}

// A whose rows are gathered: row i of D comes from row index[i] of A, or from a row of zeros where A has no such row.
struct GatheredRows {
    const uint8_t* first;
    int64_t stride;  // in bytes
    int rows, row_bytes;
    const int* index;
};

// The rows of A that COUNT tokens of a tile come from. The tokens are STEP apart. A row that A lacks becomes row 0, whose bit in `exist` is 0.
template <int COUNT, int STEP>
struct SourceRows {
    static_assert(COUNT <= 32);
    uint32_t rows[COUNT > 0 ? COUNT : 1], exist = 0;  // a bit for each row

    __device__ __forceinline__ SourceRows(const GatheredRows& a, const Work& work, int first) {
        const int* index = a.index + work.token + first;
        const int left = work.end_token - work.token - first;
#pragma unroll
        for (int i = 0; i < COUNT; i++) {
            int row = -1;
            if (i * STEP < left) row = index[i * STEP];
            const bool exists = uint32_t(row) < uint32_t(a.rows);
            rows[i] = exists ? row : 0;
            exist |= uint32_t(exists) << i;
        }
    }
};

// Gathering threads: eight lanes copy 128 bytes of a row, 16 bytes each, to the places where a tensor copy would put them. Row numbers stay in
// registers, so a copy needs four instructions. One thread copies a token's scale128. A thread's rows are STEP = 4 or 12 apart.
// So every second row has the swizzle of the first row. The other rows flip bit 2 of the piece, which is 64 bytes.
template <class Tile, class Schedule>
__device__ __forceinline__ void gather_tokens(Tile& tile, Schedule schedule, const GatheredRows& a, const auto& scales,
                                              int thread) {
    constexpr int THREADS = Tile::GATHERING_THREADS, STEP = THREADS / 8;
    constexpr int COUNT = (Tile::TOKENS + STEP - 1) / STEP, SCALES = Tile::SCALED ? (Tile::TOKENS + THREADS - 1) / THREADS : 0;
    constexpr int LINES_AT_ONCE = Tile::SCALED ? 1 : Tile::LINES;  // limited by registers
    static_assert(STEP % 4 == 0);
    const int piece = thread % 8, first = thread / 8;
    Ring<Tile::STAGES> ring;
    for (Work work; schedule.next(work);) {
        const SourceRows<COUNT, STEP> mine(a, work, first);
        const SourceRows<SCALES, THREADS> scaled(a, work, thread);
        for (int chunk = work.first_block * Tile::CHUNKS; chunk < work.end_block * Tile::CHUNKS; chunk += Tile::CHUNKS) {
            tile.wait_until_empty(ring);
#pragma unroll LINES_AT_ONCE
            for (int line = 0; line < Tile::LINES; line++) {
                const int block = chunk / Tile::CHUNKS_PER_LINE + line, byte = block * 128 + piece * 16;
                const uint32_t exist = byte < a.row_bytes ? mine.exist : 0;
                const uint8_t* from = a.first + byte;
                const uint32_t to = shared_address(tile.tokens[ring.stage][line]) + first * 128 + (piece ^ first % 8) * 16;
#pragma unroll
                for (int i = 0; i < COUNT; i++)
                    if ((i + 1) * STEP <= Tile::TOKENS || first + i * STEP < Tile::TOKENS)
                        copy_16_bytes((i * STEP % 8 == 0 ? to : to ^ 64) + i * STEP * 128,
                                      from + mine.rows[i] * uint64_t(a.stride), exist >> i & 1);
                if constexpr (Tile::SCALED) {
                    const bool within = block * 128 < a.row_bytes;
#pragma unroll
                    for (int i = 0; i < SCALES; i++) {
                        const bool exists = within && scaled.exist >> i & 1;
                        if ((i + 1) * THREADS <= Tile::TOKENS || thread + i * THREADS < Tile::TOKENS)
                            copy_4_bytes(shared_address(tile.scales.of[ring.stage][line] + thread + i * THREADS),
                                         exists ? scales.of(scaled.rows[i], 0, block) : scales.first, exists);
                    }
                }
            }
            arrive_after_copies(&tile.full[ring.stage]);
            ring.advance();
        }
        __syncwarp();
    }
}

// Called by the warps after the math warps. The first loads weights and tokens. The others gather tokens or copy scale128, if the kernel does either.
template <class Tile, class Schedule>
__device__ __forceinline__ void produce(Tile& tile, const Schedule& schedule, const auto& operands, const GatheredRows& rows) {
    if constexpr (Tile::REALLOCATES_REGISTERS) lower_registers_to<Tile::LOADER_REGISTERS>();
    const int thread = threadIdx.x - Tile::MATH_THREADS;
    if (thread < 32) {
        if (WarpCollective<Schedule> || thread == 0) load_operands(tile, schedule, operands, thread);
    } else if (requires { requires Tile::ALL_PRODUCERS_COPY; } || thread - 32 < Tile::COPYING_THREADS) {
        if constexpr (Tile::GATHERS)
            gather_tokens(tile, schedule, rows, operands.scales, thread - 32);
        else if constexpr (Tile::SCALED)
            load_token_scales(tile, schedule, operands.scales, thread - 32);
    }
}

}  // namespace zoo
