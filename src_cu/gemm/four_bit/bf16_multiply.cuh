// The loop over K of a product of bf16 and 4-bit weights, by one warpgroup. A turn is half a chunk of one part: two wgmmas of 16 of K.
// While the tensor cores are at one turn, the words of the next are unpacked, and the packed words of the one after it are on their way.
//
//     tensor cores    ####0#### ####1#### ####2#### ####3####
//     the lanes       unpack 1  unpack 2  unpack 3  unpack 4
//     shared memory    read 2    read 3    read 4    read 5
//
// Where both halves of a chunk come at once (WHOLE), the lanes read with the first of them. What is looked up (LOOKS_UP_AHEAD) is asked for
// before the tensor cores are waited for.
//
// Sums stay where they are over all of K: they keep all the bits that f32 has. What this adds up: zoo/reference/four_bit_gemm.py.
#pragma once

#include <cstdint>
#include <type_traits>

#include "common/wgmma.cuh"
#include "common/wgmma_registers_bf16.cuh"
#include "gemm/four_bit/bf16_tile.cuh"

namespace zoo {

// `source`: where packed words come from, and what they become. `exist`: how many parts of this warpgroup's lie within the matrix; others count
// as zeros.
template <class Tile, class Source>
__device__ __forceinline__ void multiply_bf16(Tile& tile, Ring<Tile::STAGES>& ring, int chunks, int exist,
                                              float (&sums)[Tile::PARTS][Tile::SUMS], Source& source) {
    constexpr int PARTS = Tile::PARTS, TURNS = 2 * PARTS, AHEAD = 2;
    constexpr int UNIT = 16, INSTRUCTION = 32 / UNIT;  // of a descriptor's address; bytes of K
    static_assert(!Source::WHOLE || PARTS <= AHEAD && Tile::CHUNKS % AHEAD == 0, "a chunk's words wait until they are unpacked");

    typename Source::Ahead ahead[AHEAD] = {};
    auto waiting = [&](int place, int turn) { return Source::WHOLE ? (PARTS == 1 ? place : turn) % AHEAD : turn % AHEAD; };
    auto fetch = [&](uint32_t at, int place, int turn) {  // `at`: how far the chunk lies behind the first
        const int s = turn / PARTS, p = turn % PARTS;
        if (Source::WHOLE && s > 0) return;
        at += p * Tile::WARPGROUPS * sizeof(tile.weights[0][0]);
        if (Tile::STORED || p < exist) source.load(ahead[waiting(place, turn)], at, s);
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
    for (int turn = 0; turn < AHEAD; turn++) fetch(at, 0, turn);
    auto look_up = [&](int place, int turn) {
        if constexpr (Source::LOOKS_UP_AHEAD) source.look_up(ahead[waiting(place, turn)]);
    };
    auto unpack = [&](int place, int turn, uint32_t (&to)[8]) {
        source.unpack(ahead[waiting(place, turn)], place, turn / PARTS, to);
    };
    look_up(0, 0);
    unpack(0, 0, words[0]);
    for (int stage, before = -1;; before = stage) {
        stage = ring.stage;
        const uint64_t first_tokens = matrix_descriptor(tile.tokens[stage][0]);
#pragma unroll
        for (int place = 0; place < Tile::CHUNKS; place++) {
            auto tokens = [&](int instruction) {  // addresses end within the lower word
                return first_tokens >> 32 << 32 |
                       uint32_t(uint32_t(first_tokens) + place * (Tile::TOKENS * 128 / UNIT) + instruction * INSTRUCTION);
            };
#pragma unroll
            for (int turn = 0; turn < TURNS; turn++) {
                const int s = turn / PARTS, p = turn % PARTS;
                hold(sums[p]);
                fence_registers();
                multiply_bf16_registers<Tile::TOKENS>(sums[p], words[turn % 2], tokens(2 * s));
                multiply_bf16_registers<Tile::TOKENS>(sums[p], words[turn % 2] + 4, tokens(2 * s + 1));
                commit_multiplications();
                hold(sums[p]);

                if (turn < TURNS - AHEAD) {
                    fetch(at + place * Tile::NEXT_CHUNK, place, turn + AHEAD);
                } else if (chunks > 1) {
                    if (turn == TURNS - AHEAD && place == Tile::CHUNKS - 1) {
                        ring.advance();
                        tile.wait_until_full(ring);
                        at = ring.stage * sizeof(tile.weights[0]);
                    }
                    const int next = (place + 1) % Tile::CHUNKS;
                    fetch(at + next * Tile::NEXT_CHUNK, next, turn + AHEAD - TURNS);
                }
                look_up((place + (turn + 1) / TURNS) % Tile::CHUNKS, (turn + 1) % TURNS);
                wait_for_multiplications<1>();
                hold(words[(turn + 1) % 2]);
                if (turn == 0 && place == 0 && before >= 0) tile.release(before);  // its wgmmas are over
                unpack((place + (turn + 1) / TURNS) % Tile::CHUNKS, (turn + 1) % TURNS, words[(turn + 1) % 2]);
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
