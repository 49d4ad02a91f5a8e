// Persistent CTAs with tokens as the rows of wgmma. Each multiplying warp stores its own rows of D and goes on to the next
// tile, which the loading warps have begun to load.
#pragma once

#include <cstdint>

#include "common/dependent_launch.cuh"
#include "common/registers.cuh"
#include "gemm/mainloop/fp8b128_mainloop.cuh"
#include "gemm/epilogue/store_rows.cuh"

namespace zoo {

// To one matrix, whatever the group: the sums of 64 rows of a tile, from the tile's `row` on.
template <class D, int SUMS>
__device__ __forceinline__ void store(const Matrix<D>& d, StagedRows& staged, const Work& work, int row,
                                      const float (&sums)[SUMS]) {
    store_rows(d, staged, work.token + row, work.end_token, work.weight, sums);
}

// What the sums of one wave go to.
template <class Target, int SUMS>
concept StoresWavesOf = requires(const Target& target, StagedRows& staged, const Work& work, float (&sums)[SUMS]) {
    store(target, staged, work, 0, sums);
};

// A warpgroup's waves, one after the other: 64 rows each, or parts of the columns of the same 64.
template <int COLUMN_WAVES, int WAVE = 0, class Target, int WAVES, int SUMS>
    requires StoresWavesOf<Target, SUMS>
__device__ __forceinline__ void store_waves(const Target& target, StagedRows& staged, Work work, int row,
                                            float (&sums)[WAVES][SUMS]) {
    store(target, staged, work, row + WAVE / COLUMN_WAVES * WGMMA_ROWS, sums[WAVE]);
    if (COLUMN_WAVES > 1) work.weight += SUMS * 2;
    // Not a loop: the compiler would keep sums that may be scaled on the stack.
    if constexpr (WAVE + 1 < WAVES) store_waves<COLUMN_WAVES, WAVE + 1>(target, staged, work, row, sums);
}

// What sums become, a warp's 16 rows at a time: gemm/epilogue.
template <class Target, class Tile, class Staged = StagedRows>
concept StoresRowsOf = requires(const Target& target, Staged& staged, const Work& work, float (&sums)[Tile::WAVES][Tile::SUMS]) {
    store_waves<Tile::COLUMN_WAVES>(target, staged, work, 0, sums);
};

template <class Tile>
struct ManyTokens {
    Tile tile;
    StagedRows staged[Tile::MATH_WARPS];

    // What the order reads from global memory it reads in next(), after the kernel before has ended.
    template <TileOrder Order, OperandsOf<Tile> Operands, StoresRowsOf<Tile> Target>
    __device__ __forceinline__ void run(Order order, const Operands& operands, const Target& d, Early early = {}) {
        let_next_kernel_launch();
        if (threadIdx.x == 0) {
            operands.prefetch_maps();
            if constexpr (requires { tile.initialise(true); })
                tile.initialise(has_bytes(operands));
            else
                tile.initialise();
            if constexpr (ReadsNothing<Order>)
                if (early.weights) load_weights_ahead(tile, order, operands);
        }
        clear_missing_tokens(tile, operands);
        __syncthreads();
        wait_for_previous_kernel();

        // A shuffled role keeps descriptors in uniform registers where one warpgroup multiplies; where two do they are there anyway.
        const bool loads = Tile::MATH_WARPS == 4 ? warp_index() >= Tile::MATH_WARPS : threadIdx.x >= Tile::MATH_THREADS;
        if (loads) {
            if constexpr (Tile::HUNGRY) keep_registers<Tile::LOADER_REGISTERS>();
            if constexpr (ReadsNothing<Order>)
                load(tile, order, operands, early.weights ? Tile::WEIGHTS_AHEAD : 0);
            else
                load(tile, order, operands);
        } else {
            if constexpr (Tile::HUNGRY) take_registers<Tile::MATH_REGISTERS>();
            const int first_row = warpgroup_index() * (Tile::ROW_WAVES * WGMMA_ROWS);
            Ring<Tile::STAGES> ring;
            for (Work work; order.next(work);) {
                float sums[Tile::WAVES][Tile::SUMS];
                if constexpr (Tile::STRADDLES)
                    multiply(tile, ring, work.end_block - work.first_block, sums, work.weight);
                else
                    multiply(tile, ring, work.end_block - work.first_block, sums);
                store_waves<Tile::COLUMN_WAVES>(d, staged[thread_index_anew() / 32], work, first_row, sums);
            }
        }
    }
};

}  // namespace zoo
