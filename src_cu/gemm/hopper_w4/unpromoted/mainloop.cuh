// The loop over K of GEMMs with e4m3 tokens and 4-bit weights whose sums are never promoted, for one warpgroup. Sums stay in the accumulator registers
// of the tensor core, which keeps only 13 fraction bits. zoo/reference/four_bit_gemm.py defines the sums to the bit. Included by unpromoted.cu.
//
// A round of the loop multiplies a chunk of one weight part: two wgmmas of 32 columns of K each. Rounds use two sets of registers alternately.
// A round overwrites its set when the wgmmas of the round before the last are complete.
//
//     tensor cores     ####0#### ####1#### ####2#### ####3####
//     the lanes        read and unpack 1   unpack 2  unpack 3
//                                read 2    read 3    read 4
#pragma once

#include <cstdint>

#include "common/mbarrier.cuh"
#include "common/warp.cuh"
#include "common/wgmma.cuh"
#include "common/wgmma_registers.cuh"
#include "gemm/hopper_w4/operands.cuh"
#include "gemm/hopper_w4/weights/packed.cuh"

namespace zoo {

// As load_packed(), of a chunk that exists.
__device__ __forceinline__ PackedWords load_existing(uint32_t codes, uint32_t scales) {
    PackedWords packed;
    asm volatile(
        "ld.shared.v4.u32 {%0, %1, %2, %3}, [%6];\n\t"
        "ld.shared.u8 %4, [%7];\n\t"
        "ld.shared.u8 %5, [%7 + 1];"
        : "=r"(packed.words[0]), "=r"(packed.words[1]), "=r"(packed.words[2]), "=r"(packed.words[3]), "=r"(packed.scales[0]),
          "=r"(packed.scales[1])
        : "r"(codes), "r"(scales)
        : "memory");
    return packed;
}

template <class Tile>
struct UnpromotedMainloop {
    static constexpr int PARTS = Tile::PARTS, ROUNDS = Tile::CHUNKS * PARTS, SETS = 2, PENDING = SETS - 1;
    static_assert(ROUNDS % SETS == 0, "a round of every stage has the same set of words");
    static_assert(Tile::CHUNKS == 2 && (Tile::TOKENS > 128 || Tile::TOKENS == 64));

    int chunks;   // along K
    int heights;  // weight parts of the matrix, from this warpgroup's first weight part on

    __device__ __forceinline__ UnpromotedMainloop(const auto& operands, const Work& work)
        : chunks(operands.b.chunks), heights(operands.b.weight_parts - work.weight / CHUNK_ROWS - warpgroup_index()) {}

    // Multiplies about as many tokens as the tile has rows; the sums of other tokens become zeros. Each width is a loop over K of its own, and no two
    // widths use wgmmas of the same shape: ptxas would merge such loops and serialize their wgmmas.
    __device__ __forceinline__ void multiply(Tile& tile, Ring<Tile::STAGES>& ring, const Work& work,
                                             float (&sums)[PARTS][Tile::SUMS]) const {
        const int rows = same_in_all_lanes(work.end_token - work.token);
        if (rows <= 32) return multiply_columns<32>(tile, ring, sums);
        if constexpr (Tile::TOKENS > 128) {
            if (rows <= 64) return multiply_columns<64>(tile, ring, sums);
            if (rows <= 128) return multiply_columns<128>(tile, ring, sums);
        }
        multiply_columns<Tile::TOKENS>(tile, ring, sums);
    }

   private:
    template <int COLUMNS>
    __device__ __forceinline__ void multiply_columns(Tile& tile, Ring<Tile::STAGES>& ring,
                                                     float (&sums)[PARTS][Tile::SUMS]) const {
        float own[PARTS][COLUMNS / 2], zero;
        multiply_all_chunks<COLUMNS>(tile, ring, own);
        asm volatile("mov.f32 %0, 0f00000000;" : "=f"(zero));  // asm keeps the zeros out of registers during the loop
#pragma unroll
        for (int p = 0; p < PARTS; p++)
#pragma unroll
            for (int j = 0; j < Tile::SUMS; j++) sums[p][j] = j < COLUMNS / 2 ? own[p][j] : zero;
    }

    template <int COLUMNS>
    __device__ __forceinline__ void multiply_all_chunks(Tile& tile, Ring<Tile::STAGES>& ring,
                                                        float (&sums)[PARTS][COLUMNS / 2]) const {
#pragma unroll
        for (int p = 0; p < PARTS; p++)
#pragma unroll
            for (int j = 0; j < COLUMNS / 2; j++) sums[p][j] = 0;
        if (chunks == 0) return;
        const uint32_t table = shared_address(tile.magnitudes);
        uint32_t first_codes[PARTS], first_scales[PARTS];  // this lane's addresses in stage 0
        find_addresses(tile, first_codes, first_scales);
        uint32_t words[SETS][8];
        int previous_stage = -1;
        for (int chunks_left = chunks; chunks_left > 0; chunks_left -= Tile::CHUNKS) {
            const int stage = ring.stage;
            tile.wait_until_full(ring);
            ring.advance();
            const uint32_t tokens = uint32_t(matrix_descriptor(tile.tokens[stage][0]));
            // Where K ends after a stage's first chunk, that chunk is read again instead of the second. Its products change no sum, because
            // tokens are zeros there. A NaN among its weights has made the sums NaN before.
            const uint32_t second = chunks_left > 1 ? Tile::CHUNK_BYTES : 0;
            auto load = [&](int round) {
                const int p = round % PARTS;
                const uint32_t at = stage * sizeof(tile.weights[0]) + round / PARTS * second;
                return load_existing(first_codes[p] + at, first_scales[p] + at);
            };
            PackedWords packed = load(0);
            RowMagnitudes entries = look_up(packed, table);
#pragma unroll
            for (int round = 0; round < ROUNDS; round++) {
                const int chunk = round / PARTS, p = round % PARTS;
                uint32_t (&own)[8] = words[round % SETS];
                wait_for_multiplications<PENDING>();
                if (round == PENDING && previous_stage >= 0) tile.release(previous_stage);
                hold(own);
                unpack(packed, entries, own);
                hold(sums[p]);
                fence_registers();
#pragma unroll
                for (int s = 0; s < 2; s++)
                    multiply_registers<COLUMNS>(sums[p], own + 4 * s, rows_at(tokens, chunk * 2 + s), true);
                commit_multiplications();
                if (round + 1 < ROUNDS) packed = load(round + 1), entries = look_up(packed, table);
            }
            previous_stage = stage;
        }
        wait_for_multiplications<0>();
#pragma unroll
        for (int p = 0; p < PARTS; p++) hold(sums[p]);
        tile.release(previous_stage);
    }

    // A weight part that the matrix does not have multiplies the tile's first weight part. Its sums are not stored.
    __device__ __forceinline__ void find_addresses(const Tile& tile, uint32_t (&codes)[PARTS], uint32_t (&scales)[PARTS]) const {
        const int thread = threadIdx.x % WARPGROUP;
#pragma unroll
        for (int p = 0; p < PARTS; p++) {
            const bool exists = heights > p * Tile::WARPGROUPS;
            const uint32_t at = shared_address(tile.weights[0][exists ? p * Tile::WARPGROUPS + warpgroup_index() : 0]);
            codes[p] = at + thread * 16;
            scales[p] = at + CODE_BYTES + (Tile::FORMAT == WeightFormat::nvfp4 ? thread * 2 : thread / 2 * 2);
            asm volatile("" : "+r"(codes[p]), "+r"(scales[p]));  // prevents a recomputation for each stage
        }
    }

    // The descriptor of 32 columns of K. `tokens`: the lower word of the descriptor of the stage.
    static __device__ __forceinline__ uint64_t rows_at(uint32_t tokens, int instruction) {
        return matrix_descriptor(nullptr) | uint32_t(tokens + instruction * 2);
    }
};

}  // namespace zoo
