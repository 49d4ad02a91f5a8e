// As many_tokens.cuh, but the two CTAs of a cluster compute neighbouring tiles, whose rows share what is learnt of them when the
// sums are there: one word a row, which each sends to the other.
//
// A word is its own flag, so nothing is fenced: 31 bits, and a mark that changes each time a place is used. There are two places
// a row, used in turn: who sends into a place for the second time has what the other sent in between, which it did after it had
// read the first. Words that are not waited for are never sent, so nobody ends too early.
#pragma once

#include <cstdint>

#include "common/cluster.cuh"
#include "common/dependent_launch.cuh"
#include "common/registers.cuh"
#include "gemm/mainloop/fp8b128_mainloop.cuh"
#include "gemm/epilogue/store_rows.cuh"

namespace zoo {

// Of one warp: 16 rows x 64 bytes on their way to memory, the 16 bytes of piece p of row r at p ^ (r / 2 % 4), so that no two
// lanes of 8 meet in a bank.
struct alignas(16) StagedHalves {
    uint8_t bytes[STAGED_ROWS * 64];

    __device__ __forceinline__ uint8_t* piece(int row, int piece) { return bytes + row * 64 + (piece ^ row / 2 % 4) * 16; }
};

// Of one warp: what the other CTA sends of 16 rows.
struct WordsOfRows {
    static constexpr uint32_t MARK = 0x80000000;

    uint32_t words[2][STAGED_ROWS];

    // By a warp. Then the cluster must synchronise.
    __device__ __forceinline__ void initialise() { words[threadIdx.x % 32 / STAGED_ROWS][threadIdx.x % STAGED_ROWS] = MARK; }

    // `turn` counts the exchanges.
    __device__ __forceinline__ void send(uint32_t word, int row, uint32_t turn) {
        const uint32_t place = address_in_cta(&words[turn % 2][row], cluster_rank() ^ 1);
        asm volatile("st.relaxed.cluster.shared::cluster.u32 [%0], %1;" ::"r"(place), "r"(word | turn << 30 & MARK) : "memory");
    }
    __device__ __forceinline__ uint32_t receive(int row, uint32_t turn) {
        uint32_t word;
        do {
            asm volatile("ld.relaxed.cluster.shared.u32 %0, [%1];"
                         : "=r"(word)
                         : "r"(shared_address(&words[turn % 2][row]))
                         : "memory");
        } while (((word ^ turn << 30) & MARK) != 0);
        return word & ~MARK;
    }
};

// What half of a block goes to, with what the other CTA says of its rows.
template <class Target, class Tile>
concept StoresHalvesOf =
    requires(const Target& target, StagedHalves& staged, WordsOfRows& words, const Work& work,
             float (&sums)[Tile::WAVES][Tile::SUMS]) { store_half(target, staged, words, work, 0, 0, sums); };

template <class Tile>
struct TilesInPairs {
    Tile tile;
    StagedHalves staged[Tile::MATH_WARPS];
    WordsOfRows words[Tile::MATH_WARPS];

    // What the order reads from global memory it reads in next(), after the kernel before has ended. Target is asserted and not required:
    // a kernel's branch for results that need no pairs names this, too, and is not taken.
    template <TileOrder Order, OperandsOf<Tile> Operands, class Target>
    __device__ __forceinline__ void run(Order order, const Operands& operands, const Target& d) {
        static_assert(StoresHalvesOf<Target, Tile>);
        let_next_kernel_launch();
        if (threadIdx.x == 0) {
            operands.prefetch_maps();
            tile.initialise();
        }
        if (threadIdx.x < Tile::MATH_THREADS) words[threadIdx.x / 32].initialise();
        clear_missing_tokens(tile, operands);
        __syncwarp();
        synchronise_cluster();
        wait_for_previous_kernel();

        if (threadIdx.x >= Tile::MATH_THREADS) {
            if constexpr (Tile::HUNGRY) keep_registers<Tile::LOADER_REGISTERS>();
            load(tile, order, operands);
        } else {
            if constexpr (Tile::HUNGRY) take_registers<Tile::MATH_REGISTERS>();
            const int first_row = warpgroup_index() * (Tile::ROW_WAVES * WGMMA_ROWS);
            Ring<Tile::STAGES> ring;
            uint32_t turn = 0;
            for (Work work; order.next(work); turn++) {
                float sums[Tile::WAVES][Tile::SUMS];
                multiply(tile, ring, work.end_block - work.first_block, sums);
                const int warp = thread_index_anew() / 32;
                store_half(d, staged[warp], words[warp], work, first_row, turn, sums);
            }
        }
    }
};

}  // namespace zoo
