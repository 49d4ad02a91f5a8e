// Persistent CTAs with tokens as the rows of wgmma. Each multiplying warp stores its own rows of D and goes on to the next
// tile, which the loading warps have begun to load.
#pragma once

#include <cstdint>

#include "common/dependent_launch.cuh"
#include "common/registers.cuh"
#include "gemm/fp8b128_mainloop.cuh"
#include "gemm/store_rows.cuh"

namespace zoo {

template <class Tile>
struct ManyTokens {
    Tile tile;
    StagedRows staged[Tile::MATH_WARPS];

    // What the order reads from global memory it reads in next(), after the kernel before has ended.
    template <class Order, class D>
    __device__ __forceinline__ void run(Order order, const Operands<Tile>& operands, const Matrix<D>& d) {
        let_next_kernel_launch();
        if (threadIdx.x == 0) {
            operands.prefetch_maps();
            tile.initialise();
        }
        __syncthreads();
        wait_for_previous_kernel();

        if (threadIdx.x >= Tile::MATH_THREADS) {
            if constexpr (Tile::HUNGRY) keep_registers<Tile::LOADER_REGISTERS>();
            load(tile, order, operands);
        } else {
            if constexpr (Tile::HUNGRY) take_registers<Tile::MATH_REGISTERS>();
            const int first_row = warpgroup_index() * (Tile::WAVES * WGMMA_ROWS);
            Ring<Tile::STAGES> ring;
            for (Work work; order.next(work);) {
                float sums[Tile::WAVES][Tile::SUMS];
                multiply(tile, ring, work.end_block - work.first_block, sums);
#pragma unroll
                for (int wave = 0; wave < Tile::WAVES; wave++)
                    store_rows(d, staged[threadIdx.x / 32], work.token + first_row + wave * WGMMA_ROWS, work.end_token,
                               work.weight, sums[wave]);
            }
        }
    }
};

}  // namespace zoo
