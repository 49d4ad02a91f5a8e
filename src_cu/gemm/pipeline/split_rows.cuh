// A tile with tokens as rows whose blocks of K two CTAs share: each stores half of the columns, and sends the sums of the other half
// out of its registers to the same threads of the other CTA:
//
//     CTA 0    | keeps, adds, stores | sends |  -->  | adds to what it keeps, stores |    CTA 1
//                            columns   0 ... | half ...
//
// They lie where the stages were that a CTA gives back first of its last, long before the other's sums come; who copies says so.
// Sums are added in the order of the shares of K: two of them, and zero first, so that either CTA may begin with its own.
#pragma once

#include <cstdint>

#include "common/cluster.cuh"
#include "common/dependent_launch.cuh"
#include "common/registers.cuh"
#include "gemm/mainloop/fp8b128_mainloop.cuh"
#include "gemm/pipeline/many_tokens.cuh"
#include "gemm/epilogue/store_rows.cuh"

namespace zoo {

template <class Tile>
struct SplitRows {
    static constexpr int PREFETCHED = 3;  // blocks of weights
    static constexpr bool SHARES = Tile::SHARERS > 1;
    static_assert(!Tile::SWAPPED && Tile::WAVES == 1);

    // Of a thread's sums: those from SECOND on are of CTA 1's columns, a multiple of 16, which is what a warp stores at once.
    static constexpr int SECOND = (Tile::SUMS / 2 + 7) / 8 * 8;

    // A piece is four registers of all threads; so many lie in a stage's tokens, then in its weights, then in the next stage's tokens.
    static constexpr int PIECE_BYTES = Tile::MATH_THREADS * 16, PIECES = SECOND / 4;
    static constexpr int IN_TOKENS = Tile::TOKENS * SCALE_BLOCK / PIECE_BYTES,
                         IN_WEIGHTS = Tile::WEIGHTS * SCALE_BLOCK / PIECE_BYTES;
    static constexpr int STAGES_USED = PIECES > IN_TOKENS + IN_WEIGHTS ? 2 : 1;
    static_assert(PIECES <= 2 * IN_TOKENS + IN_WEIGHTS && STAGES_USED <= Tile::STAGES);

    Tile tile;
    StagedRows staged[Tile::MATH_WARPS];
    Barrier room, arrived;  // the other CTA has room; its sums are here

    // Where a piece lies in a CTA that has multiplied so many blocks.
    __device__ __forceinline__ float4* place(int piece, int blocks) {
        const int stage = blocks % Tile::STAGES, next = (blocks + 1) % Tile::STAGES;
        uint8_t* bytes = piece < IN_TOKENS                ? tile.tokens[stage] + piece * PIECE_BYTES
                         : piece < IN_TOKENS + IN_WEIGHTS ? tile.weights[stage] + (piece - IN_TOKENS) * PIECE_BYTES
                                                          : tile.tokens[next] + (piece - IN_TOKENS - IN_WEIGHTS) * PIECE_BYTES;
        return reinterpret_cast<float4*>(bytes) + threadIdx.x;
    }

    // By the multiplying warps of CTA SPLIT of the two.
    template <int SPLIT, class Target>
    __device__ __forceinline__ void exchange_and_store(const float (&sums)[Tile::SUMS], const Target& d, Work work, int blocks,
                                                       int its_blocks, uint32_t other) {
        constexpr int OWN = SPLIT * SECOND, KEPT = SPLIT == 0 ? SECOND : Tile::SUMS - SECOND, SENT_FROM = SECOND - OWN;
        wait(&room, 0);
#pragma unroll
        for (int piece = 0; piece < (Tile::SUMS - KEPT) / 4; piece++) {
            const float* four = &sums[SENT_FROM + piece * 4];
            store_in_cta(place(piece, its_blocks), make_float4(four[0], four[1], four[2], four[3]), &arrived, other);
        }
        float kept[KEPT];
        wait(&arrived, 0);
#pragma unroll
        for (int piece = 0; piece < KEPT / 4; piece++) {
            const float4 four = *place(piece, blocks);
            const float values[4] = {four.x, four.y, four.z, four.w};
#pragma unroll
            for (int i = 0; i < 4; i++) kept[piece * 4 + i] = 0 + sums[OWN + piece * 4 + i] + values[i];
        }
        work.weight += OWN * 2;
        store(d, staged[threadIdx.x / 32], work, warpgroup_index() * WGMMA_ROWS, kept);
    }

    template <TileOrder Order, OperandsOf<Tile> Operands, class Target>
    __device__ __forceinline__ void run(Order order, const Operands& operands, const Target& d, Early early = {}) {
        const Work work = order.work;
        const int split = cluster_rank() / Tile::SHARERS, other = cluster_rank() ^ Tile::SHARERS;

        let_next_kernel_launch();
        if (threadIdx.x == 0) {
            if (!early.weights) operands.prefetch_weights(work, PREFETCHED);
            operands.prefetch_maps();
            tile.initialise();
            initialise(&room, 1);
            initialise(&arrived, 1);
            arrive_expecting_bytes(&arrived, (split == 0 ? SECOND : Tile::SUMS - SECOND) * 4 * Tile::MATH_THREADS);
            if (early.weights) load_weights_ahead(tile, order, operands);
        }
        if (early.tokens) prefetch_tokens<Tile>(order, operands, work);
        clear_missing_tokens(tile, operands);
        __syncthreads();
        arrive_at_cluster();  // when all have, they may be sent to
        wait_for_previous_kernel();

        const int blocks = work.end_block - work.first_block;
        if (threadIdx.x >= Tile::MATH_THREADS) {
            if constexpr (Tile::HUNGRY) keep_registers<Tile::LOADER_REGISTERS>();
            if constexpr (SHARES) wait_for_cluster();
            load(tile, order, operands, early.weights ? Tile::WEIGHTS_AHEAD : 0);
            __syncwarp();
            if constexpr (!SHARES) wait_for_cluster();
            if (threadIdx.x == Tile::MATH_THREADS) {
#pragma unroll
                for (int i = 0; i < STAGES_USED; i++) tile.wait_for_stage_of(blocks + i);
                arrive_in_cta(&room, other);
            }
            __syncwarp();
        } else {
            if constexpr (Tile::HUNGRY) take_registers<Tile::MATH_REGISTERS>();
            wait_for_cluster();
            Ring<Tile::STAGES> ring;
            float sums[1][Tile::SUMS];
            if constexpr (Tile::STRADDLES)
                multiply(tile, ring, blocks, sums, work.weight);
            else
                multiply(tile, ring, blocks, sums);
            const int its_blocks = order.blocks_of(split ^ 1);
            if (split == 0)
                exchange_and_store<0>(sums[0], d, work, blocks, its_blocks, other);
            else
                exchange_and_store<1>(sums[0], d, work, blocks, its_blocks, other);
        }
        if constexpr (SHARES) tile.stay_until_given_back(blocks);
    }
};

}  // namespace zoo
