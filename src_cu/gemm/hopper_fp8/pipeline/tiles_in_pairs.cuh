// The pipeline of many tokens in pairs: the two CTAs of a cluster compute neighbouring tiles, which have the two halves of a scale block.
// For each row, each CTA sends one word to the other when the sums are complete. Included by the SwiGLU kernels with fp8b128 output.
//
// A word needs no fence, because it is its own flag: 31 bits, and a mark that changes at each use of its buffer. A row has two buffers, which are used
// alternately. Before a CTA sends to a buffer again, it has received the word of the exchange between. The other CTA sent that word after it had
// read this buffer. A CTA receives all words that it is sent, so no CTA exits too early.
#pragma once

#include <cstdint>

#include "common/cluster.cuh"
#include "common/dependent_launch.cuh"
#include "common/registers.cuh"
#include "gemm/hopper_fp8/mainloop.cuh"
#include "gemm/hopper_fp8/producer.cuh"
#include "gemm/hopper_fp8/store_rows.cuh"

namespace zoo {

// The buffer of a warp: 16 rows x 64 bytes. Piece p of row r, 16 bytes, is at p ^ (r / 2 % 4): no bank conflicts among 8 lanes.
struct alignas(16) HalfRowBuffer {
    uint8_t bytes[WARP_ROWS * 64];

    __device__ __forceinline__ uint8_t* piece(int row, int piece) { return bytes + row * 64 + (piece ^ row / 2 % 4) * 16; }
};

// The words that one warp receives from the other CTA, for its 16 rows.
struct RowExchange {
    static constexpr uint32_t MARK = 0x80000000;

    uint32_t words[2][WARP_ROWS];

    // All lanes of the warp call this. Then the cluster must synchronise.
    __device__ __forceinline__ void initialise() { words[threadIdx.x % 32 / WARP_ROWS][threadIdx.x % WARP_ROWS] = MARK; }

    // `exchange` counts the exchanges.
    __device__ __forceinline__ void send(uint32_t word, int row, uint32_t exchange) {
        const uint32_t to = address_in_cta(&words[exchange % 2][row], cluster_rank() ^ 1);
        asm volatile("st.relaxed.cluster.shared::cluster.u32 [%0], %1;" ::"r"(to), "r"(word | exchange << 30 & MARK) : "memory");
    }
    __device__ __forceinline__ uint32_t receive(int row, uint32_t exchange) {
        uint32_t word;
        do {
            asm volatile("ld.relaxed.cluster.shared.u32 %0, [%1];"
                         : "=r"(word)
                         : "r"(shared_address(&words[exchange % 2][row]))
                         : "memory");
        } while (((word ^ exchange << 30) & MARK) != 0);
        return word & ~MARK;
    }
};

// Stores half a scale block, with the words that the other CTA sends.
template <class Target, class Tile>
concept StoresHalfBlocksOf =
    requires(const Target& target, HalfRowBuffer& buffer, RowExchange& words, const Work& work,
             float (&sums)[Tile::PASSES][Tile::SUMS]) { store_half(target, buffer, words, work, 0, 0, sums); };

template <class Tile>
struct TilesInPairs {
    Tile tile;
    HalfRowBuffer buffers[Tile::MATH_WARPS];
    RowExchange words[Tile::MATH_WARPS];

    // Schedules read global memory only in next(), which runs after the previous kernel has ended. Target is asserted and not required: swiglu.cu
    // also names this function with a bf16 target, in a branch that never runs.
    template <TileSchedule Schedule, OperandsOf<Tile> Operands, class Target>
    __device__ __forceinline__ void run(Schedule schedule, const Operands& operands, const Target& d) {
        static_assert(StoresHalfBlocksOf<Target, Tile>);
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
            if constexpr (Tile::REALLOCATES_REGISTERS) lower_registers_to<Tile::LOADER_REGISTERS>();
            load(tile, schedule, operands);
        } else {
            if constexpr (Tile::REALLOCATES_REGISTERS) raise_registers_to<Tile::MATH_REGISTERS>();
            const int first_row = warpgroup_index() * (Tile::ROW_PASSES * WGMMA_ROWS);
            Ring<Tile::STAGES> ring;
            uint32_t exchange = 0;
            for (Work work; schedule.next(work); exchange++) {
                float sums[Tile::PASSES][Tile::SUMS];
                multiply(tile, ring, work.end_block - work.first_block, sums);
                const int warp = reread_thread_index() / 32;
                store_half(d, buffers[warp], words[warp], work, first_row, exchange, sums);
            }
        }
    }
};

}  // namespace zoo
