// The tile of a GEMM with bf16 tokens and 4-bit weights, its ring of stages in shared memory, and its loop over K for one warpgroup.
// bf16/pipeline.cuh and gated/pipeline.cuh include this file. A warpgroup has one or more weight parts: 64 weight rows each.
//
// A stage holds CHUNKS chunks along K, 64 columns each:
//
//     tokens      for each chunk: TOKENS x 128 bytes of A, with the 128-byte swizzle
//     weights     for each weight part: CHUNKS packed chunks, by one copy; or 128 bytes of each of 64 stored weight rows, with the 128-byte swizzle
//
//     full[stage]     the producer thread arrives and expects its bytes; each thread that gathers rows arrives by its copies
//     empty[stage]    each math warp arrives when its wgmmas on the stage are complete
//
// A round of the loop multiplies half a chunk of one weight part: two wgmmas of one K step (16 columns) each. While the tensor cores compute a round,
// the lanes unpack the words of the next round. They also read the codes of the round after that from shared memory.
//
//     tensor cores     ####0#### ####1#### ####2#### ####3####
//     the lanes        unpack 1  unpack 2  unpack 3  unpack 4
//     shared memory    read 2    read 3    read 4    read 5
//
// A WHOLE source reads both halves of a chunk during the round of the first half. A source that LOOKS_UP_AHEAD starts its look-ups before the wait for
// the tensor cores.
//
// Sums stay in the accumulator registers along all of K. There is no promotion, because wgmma adds bf16 products with all bits of f32.
// zoo/reference/four_bit_gemm.py defines the sums.
#pragma once

#include <cstdint>
#include <type_traits>

#include "common/e2m1_to_bf16.cuh"
#include "common/mbarrier.cuh"
#include "common/nothing.cuh"
#include "common/tensor_copy.cuh"
#include "common/wgmma.cuh"
#include "common/wgmma_registers_bf16.cuh"
#include "gemm/hopper_w4/operands.cuh"

namespace zoo {

// Whether a variant's table has the constant LOOKS_UP.
template <class V>
constexpr bool looks_up = requires { V::LOOKS_UP; };

// PARTS: parts of 64 weight rows of a warpgroup. Part p of warpgroup w is number p * WARPGROUPS + w of the tile.
template <WeightFormat FORMAT_, int TOKENS_, int PARTS_, int STAGES_, int CHUNKS_, int GATHERING_THREADS_,
          WeightLayout LAYOUT_ = WeightLayout::packed, bool LOOKS_UP_ = false>
struct Bf16Tile
    : StageBarriers<Bf16Tile<FORMAT_, TOKENS_, PARTS_, STAGES_, CHUNKS_, GATHERING_THREADS_, LAYOUT_, LOOKS_UP_>, STAGES_> {
    static constexpr WeightFormat FORMAT = FORMAT_;
    static constexpr int TOKENS = TOKENS_, PARTS = PARTS_, STAGES = STAGES_, CHUNKS = CHUNKS_, WARPGROUPS = 2;
    static constexpr bool GATHERS = GATHERING_THREADS_ > 0, SCALED = false, OF_BF16 = true;
    static constexpr WeightLayout LAYOUT = LAYOUT_;
    static constexpr bool STORED = LAYOUT != WeightLayout::packed;
    static constexpr bool LOOKS_UP = LOOKS_UP_;  // pairs of stored codes are read from a table
    static constexpr int WEIGHT_PARTS = WARPGROUPS * PARTS, WEIGHTS = WEIGHT_PARTS * CHUNK_ROWS, SUMS = TOKENS / 2;
    static constexpr int CHUNKS_PER_LINE = 1, LINES = CHUNKS;  // a line: 128 bytes of a token
    static constexpr int CHUNK_BYTES =
        STORED ? CODE_BYTES : CODE_BYTES + CHUNK_ROWS * CHUNK / (FORMAT == WeightFormat::nvfp4 ? 16 : 32);
    static constexpr int NEXT_CHUNK = STORED ? CHUNK / 2 : CHUNK_BYTES;  // bytes from one chunk to the next
    static_assert(!STORED || CHUNKS == 4 && PARTS == 1, "a stage has 128 bytes of each row as it is stored");
    static_assert(STAGES >= 2, "a stage is given back a chunk after its last");

    // Read by gemm/epilogue/pushed_sums.cuh.
    static constexpr bool SWAPPED = true;
    static constexpr int PASSES = 1, SHARERS = 1;

    static constexpr int MATH_WARPS = WARPGROUPS * 4, MATH_THREADS = MATH_WARPS * 32;
    static constexpr bool SPILLS_TO_SHARED = SUMS * PARTS > 64;  // during the mainloop, schedule and tile wait in shared memory
    static constexpr bool REALLOCATES_REGISTERS = SPILLS_TO_SHARED || LAYOUT == WeightLayout::stored_gate_up && SUMS == 64;
    static constexpr int GATHERING_THREADS = GATHERING_THREADS_, COPYING_THREADS = GATHERING_THREADS;
    static constexpr int THREADS = MATH_THREADS + (REALLOCATES_REGISTERS ? 128 : 32 + GATHERING_THREADS);
    static constexpr int LOADER_REGISTERS = LAYOUT == WeightLayout::stored_gate_up ? 104 : 72,
                         MATH_REGISTERS = 252 - LOADER_REGISTERS / 2;
    static constexpr uint32_t FULL_ARRIVALS = 1 + GATHERING_THREADS, EMPTY_ARRIVALS = MATH_WARPS;

    alignas(1024) uint8_t tokens[STAGES][LINES][TOKENS * 128];
    alignas(STORED ? 1024 : 128) uint8_t weights[STAGES][WEIGHT_PARTS][CHUNKS * CHUNK_BYTES];
    std::conditional_t<LOOKS_UP, PairsOfBytes, Nothing> pairs;
    Barrier full[STAGES], empty[STAGES];

    // All threads call this, and then synchronise.
    __device__ __forceinline__ void initialise() {
        if constexpr (LOOKS_UP) pairs.fill(THREADS);
        if (threadIdx.x == 0) this->initialise_barriers(FULL_ARRIVALS, EMPTY_ARRIVALS);
    }

    __device__ __forceinline__ void wait_until_full(Ring<STAGES> ring) {
        StageBarriers<Bf16Tile, STAGES>::wait_until_full(ring);
        if constexpr (GATHERS) let_copies_see_shared_memory();
    }
};

// One warpgroup calls this. `source`: PackedBf16Weights or StoredBf16Weights. `exist`: weight parts of this warpgroup within the matrix. The other
// parts count as zeros.
template <class Tile, class Source>
__device__ __forceinline__ void multiply_bf16(Tile& tile, Ring<Tile::STAGES>& ring, int chunks, int exist,
                                              float (&sums)[Tile::PARTS][Tile::SUMS], Source& source) {
    constexpr int PARTS = Tile::PARTS, ROUNDS = 2 * PARTS, AHEAD = 2;
    constexpr int DESCRIPTOR_STEP = 16;                // bytes: a descriptor counts addresses in these steps
    constexpr int INSTRUCTION = 32 / DESCRIPTOR_STEP;  // steps from one K step to the next
    static_assert(!Source::WHOLE || PARTS <= AHEAD && Tile::CHUNKS % AHEAD == 0, "a chunk's words wait until they are unpacked");

    typename Source::Ahead ahead[AHEAD] = {};
    auto waiting = [&](int place, int round) { return Source::WHOLE ? (PARTS == 1 ? place : round) % AHEAD : round % AHEAD; };
    // `at` is the offset of the chunk from the first chunk.
    auto fetch = [&](uint32_t at, int place, int round) {
        const int s = round / PARTS, p = round % PARTS;
        if (Source::WHOLE && s > 0) return;
        at += p * Tile::WARPGROUPS * sizeof(tile.weights[0][0]);
        if (Tile::STORED || p < exist) source.load(ahead[waiting(place, round)], at, s);
    };
    uint32_t words[2][8];
#pragma unroll
    for (int p = 0; p < PARTS; p++)
#pragma unroll
        for (int j = 0; j < Tile::SUMS; j++) sums[p][j] = 0;
    if (chunks == 0) return;
    tile.wait_until_full(ring);
    uint32_t at = ring.stage * sizeof(tile.weights[0]);
#pragma unroll
    for (int round = 0; round < AHEAD; round++) fetch(at, 0, round);
    auto look_up = [&](int place, int round) {
        if constexpr (Source::LOOKS_UP_AHEAD) source.look_up(ahead[waiting(place, round)]);
    };
    auto unpack = [&](int place, int round, uint32_t (&to)[8]) {
        source.unpack(ahead[waiting(place, round)], place, round / PARTS, to);
    };
    look_up(0, 0);
    unpack(0, 0, words[0]);
    for (int stage, previous_stage = -1;; previous_stage = stage) {
        stage = ring.stage;
        const uint64_t first_tokens = matrix_descriptor(tile.tokens[stage][0]);
#pragma unroll
        for (int place = 0; place < Tile::CHUNKS; place++) {
            auto tokens = [&](int instruction) {  // an address fits in the lower word
                return first_tokens >> 32 << 32 |
                       uint32_t(uint32_t(first_tokens) + place * (Tile::TOKENS * 128 / DESCRIPTOR_STEP) +
                                instruction * INSTRUCTION);
            };
#pragma unroll
            for (int round = 0; round < ROUNDS; round++) {
                const int s = round / PARTS, p = round % PARTS;
                hold(sums[p]);
                fence_registers();
                multiply_bf16_registers<Tile::TOKENS>(sums[p], words[round % 2], tokens(2 * s));
                multiply_bf16_registers<Tile::TOKENS>(sums[p], words[round % 2] + 4, tokens(2 * s + 1));
                commit_multiplications();
                hold(sums[p]);

                if (round < ROUNDS - AHEAD) {
                    fetch(at + place * Tile::NEXT_CHUNK, place, round + AHEAD);
                } else if (chunks > 1) {
                    if (round == ROUNDS - AHEAD && place == Tile::CHUNKS - 1) {
                        ring.advance();
                        tile.wait_until_full(ring);
                        at = ring.stage * sizeof(tile.weights[0]);
                    }
                    const int next = (place + 1) % Tile::CHUNKS;
                    fetch(at + next * Tile::NEXT_CHUNK, next, round + AHEAD - ROUNDS);
                }
                look_up((place + (round + 1) / ROUNDS) % Tile::CHUNKS, (round + 1) % ROUNDS);
                wait_for_multiplications<1>();
                hold(words[(round + 1) % 2]);
                if (round == 0 && place == 0 && previous_stage >= 0)
                    tile.release(previous_stage);  // the wgmmas on that stage are done
                unpack((place + (round + 1) / ROUNDS) % Tile::CHUNKS, (round + 1) % ROUNDS, words[(round + 1) % 2]);
            }
            if (--chunks == 0) break;
        }
        if (chunks == 0) break;
    }
    wait_for_multiplications<0>();
#pragma unroll
    for (int p = 0; p < PARTS; p++) hold(sums[p]);
    tile.release(ring.stage);
    ring.advance();
}

}  // namespace zoo
