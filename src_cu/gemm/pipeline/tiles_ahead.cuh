// As many_tokens.cuh, but the tensor cores have work while D is stored. A warpgroup of 192 x 128 was seen to take 2100 to 2400
// cycles between two tiles, of 16000 a tile at K = 2048: 350 to 1000 to find the next tile, 1000 to 1800 to store D. Here
//
//     copying thread    ... t8 | finds tile u, says so | u0 u1 u2 ...
//     warpgroup         ... t7 ####pp  t8 ####pp  u0 ####[sums of t are stored]pp  u1 ####pp
//
// - who copies announces the tile beside its first block, so nobody else walks along groups or divides,
// - the next tile's first wgmmas run while a warp stores its sums.
//
// It paid for 256 x 128, not for 192 x 128 (docs/lab/fp8_gemm_many_tokens.md).
#pragma once

#include <cstdint>

#include "common/dependent_launch.cuh"
#include "common/registers.cuh"
#include "gemm/mainloop/fp8b128_mainloop.cuh"
#include "gemm/pipeline/many_tokens.cuh"
#include "gemm/epilogue/store_rows.cuh"

namespace zoo {

// What a multiplying warp has to know of a tile whose first block is in the same stage.
struct alignas(16) Announced {
    int token, weight, end_token, more;  // more: there is a tile after it
};

// By one thread, for all of its CTA's work, or by its warp where the order takes one; then the others only walk along.
template <class Tile, class Order, class Operands>
__device__ __forceinline__ void load_and_announce(Tile& tile, Announced (&announced)[Tile::STAGES], Order order,
                                                  const Operands& operands, int lane) {
    Ring<Tile::STAGES> ring;
    Work work, next;
    for (bool more = order.next(work); more; work = next) {
        more = order.next(next);
        if (OfWarps<Order> && lane > 0) continue;
        for (int block = work.first_block; block < work.end_block; block++, ring.advance()) {
            tile.wait_until_empty(ring);
            if (block == work.first_block) announced[ring.stage] = {work.token, work.weight, work.end_token, more};
            operands.load_weights(tile, ring.stage, work, block);
            operands.load_tokens(tile, ring.stage, work, block);
        }
    }
}

template <class Tile>
struct TilesAhead {
    Tile tile;
    StagedRows staged[Tile::MATH_WARPS];
    Announced announced[Tile::STAGES];

    // What the order reads from global memory it reads in next(), after the kernel before has ended.
    template <TileOrder Order, OperandsOf<Tile> Operands, StoresWavesOf<Tile::SUMS> Target>
    __device__ __forceinline__ void run(Order order, const Operands& operands, const Target& d, Early = {}) {
        let_next_kernel_launch();
        if (threadIdx.x == 0) {
            operands.prefetch_maps();
            tile.initialise();
        }
        clear_missing_tokens(tile, operands);
        __syncthreads();
        wait_for_previous_kernel();

        const int thread = threadIdx.x - Tile::MATH_THREADS;
        if (thread >= 0) {
            if constexpr (Tile::HUNGRY) keep_registers<Tile::LOADER_REGISTERS>();
            if (thread >= 32)
                load_scales(tile, order, operands, thread - 32);
            else if (OfWarps<Order> || thread == 0)
                load_and_announce(tile, announced, order, operands, thread);
        } else {
            if constexpr (Tile::HUNGRY) take_registers<Tile::MATH_REGISTERS>();
            Work work;
            if (order.next(work)) multiply_and_store(d, order.blocks, work);
        }
    }

    template <class Target>
    __device__ __forceinline__ void multiply_and_store(const Target& d, int blocks, Work work) {
        const int first_row = warpgroup_index() * (Tile::ROW_WAVES * WGMMA_ROWS);
        Ring<Tile::STAGES> ring;
        float partial[Tile::SUMS];
        tile.wait_until_full(ring);
        start_wave(tile, ring.stage, first_row, 0, partial);
        for (;;) {
            const bool more = __any_sync(0xFFFFFFFF, announced[ring.stage].more);
            float sums[Tile::WAVES][Tile::SUMS];
            multiply_started(tile, ring, blocks, first_row, partial, sums);
            const Work done = work;
            if (!more) {
                store_waves(d, done, first_row, sums);
                break;
            }
            tile.wait_until_full(ring);
            start_wave(tile, ring.stage, first_row, 0, partial);
            const Announced next = announced[ring.stage];
            work.token = next.token, work.weight = next.weight, work.end_token = next.end_token;
            store_waves(d, done, first_row, sums);
            __syncwarp();  // else ptxas takes the warp for divided, and every descriptor goes to uniform registers anew
        }
    }

    template <class Target, int WAVES, int SUMS>
    __device__ __forceinline__ void store_waves(const Target& d, const Work& work, int row, float (&sums)[WAVES][SUMS]) {
#pragma unroll
        for (int wave = 0; wave < WAVES; wave++)
            store(d, staged[thread_index_anew() / 32], work, row + wave * WGMMA_ROWS, sums[wave]);
    }
};

}  // namespace zoo
