// Many tokens, as many_tokens.cuh, in whole waves of tiles; and what fills no wave is shared along K. A cluster is 2 or 4 CTAs, as
// the launch says, or there are none and nothing is shared:
//
//     CTA 0 of a cluster    | tile      0 | tile    264 | tile 396, first half of K  | sends | adds, stores columns   0 ... 63
//     CTA 1                 | tile      1 | tile    265 | tile 396, second half of K | sends | adds, stores columns  64 ... 127
//
// Each CTA stores a part of the shared tile's columns, and sends the sums of the others out of its registers to the same threads
// of their CTAs. They lie where the stages were that a CTA gives back first of its last, long before the sums come; who copies says so.
// Sums are added in the order of the shares of K, zero first, whoever adds them: the same call gives the same bits. Which tiles are
// shared depends on how many multiprocessors there are.
#pragma once

#include <cstdint>

#include "common/cluster.cuh"
#include "common/dependent_launch.cuh"
#include "common/registers.cuh"
#include "gemm/mainloop/fp8b128_mainloop.cuh"
#include "gemm/pipeline/many_tokens.cuh"
#include "gemm/pipeline/parked.cuh"
#include "gemm/epilogue/store_rows.cuh"
#include "gemm/schedule/tile_order.cuh"

namespace zoo {

// A CTA's whole tiles, one for each wave, then its share of one more. The launch sees to it that there are no more of those than clusters.
template <class Tile, int BAND>
struct RestOrder {
    static constexpr bool READS_NOTHING = true;
    EvenTiles<Tile> cut;
    int rows, columns, blocks;  // tiles down and along; blocks of K
    int index = blockIdx.x;
    int whole;            // tiles before this one are nobody's share
    bool shares = false;  // what next() gave last is a share

    __device__ __forceinline__ RestOrder(int M, int N, int blocks)
        : cut(M), rows(tiles_of(M, Tile::TOKENS)), columns(tiles_of(N, Tile::WEIGHTS)), blocks(blocks) {
        whole = rows * columns;
        if (cluster_size() > 1) whole -= whole % gridDim.x;
    }

    __device__ __forceinline__ int first_block(int split) const { return int(int64_t(blocks) * split / cluster_size()); }

    __device__ __forceinline__ int shared_tile() const { return whole + blockIdx.x / cluster_size(); }
    __device__ __forceinline__ bool has_share() const { return cluster_size() > 1 && shared_tile() < rows * columns; }

    __device__ __forceinline__ bool next(Work& work) {
        if (shares) return false;
        int tile = index;
        if (index >= whole) {
            if (!has_share()) return false;
            tile = shared_tile();
            shares = true;
        }
        const Banded<BAND> place(tile, rows, columns);
        const int rank = cluster_rank();
        work = {cut.first(place.row),           place.column * Tile::WEIGHTS,           cut.end(place.row), 0,
                shares ? first_block(rank) : 0, shares ? first_block(rank + 1) : blocks};
        index += gridDim.x;
        return true;
    }

    // Of a CTA of this cluster, which has a share.
    __device__ __forceinline__ int all_blocks(int rank) const {
        return int(whole / gridDim.x) * blocks + first_block(rank + 1) - first_block(rank);
    }
};

// A CTA stores some columns of a shared tile: those from `columns` on are cut off.
template <class Target, int SUMS>
concept StoresColumnsOf = StoresWavesOf<Target, SUMS> && requires(Target part) { part.columns = min(part.columns, 0); };

template <class Tile>
struct SharedRest {
    static_assert(!Tile::SWAPPED && Tile::WAVES == 1);

    // Of a thread's sums: those from here on are stored by CTA `rank` of so many. A multiple of 16 columns is what a warp stores at once.
    static __host__ __device__ constexpr int first_of(int rank, int cut) {
        return rank == cut ? Tile::SUMS : (Tile::SUMS * rank / cut + 7) / 8 * 8;
    }
    static __host__ __device__ constexpr int count_of(int rank, int cut) { return first_of(rank + 1, cut) - first_of(rank, cut); }

    // A piece is four registers of all threads; so many lie in a stage's tokens, then in its weights, then in the next stage's.
    static constexpr int PIECE_BYTES = Tile::MATH_THREADS * 16;
    static constexpr int IN_TOKENS = Tile::TOKENS * SCALE_BLOCK / PIECE_BYTES,
                         IN_STAGE = IN_TOKENS + Tile::WEIGHTS * SCALE_BLOCK / PIECE_BYTES;
    static __host__ __device__ constexpr int stages_used(int cut) {
        return ((cut - 1) * (count_of(0, cut) / 4) + IN_STAGE - 1) / IN_STAGE;
    }
    static_assert(stages_used(2) <= Tile::STAGES && stages_used(4) <= Tile::STAGES);

    Tile tile;
    StagedRows staged[Tile::MATH_WARPS];
    Barrier room, arrived;  // the others have room; their sums are here
    alignas(16) int parked[Tile::MATH_WARPS][8];

    // Where a piece lies in a CTA that has multiplied so many blocks.
    __device__ __forceinline__ float4* place(int piece, int blocks) {
        const int stage = (blocks + piece / IN_STAGE) % Tile::STAGES, within = piece % IN_STAGE;
        uint8_t* bytes = within < IN_TOKENS ? tile.tokens[stage] + within * PIECE_BYTES
                                            : tile.weights[stage] + (within - IN_TOKENS) * PIECE_BYTES;
        return reinterpret_cast<float4*>(bytes) + threadIdx.x;
    }

    // By the multiplying warps of CTA RANK of CUT. A CTA has the pieces of those before it, then of those after it.
    template <int CUT, int RANK, int OTHER, class Order>
    __device__ __forceinline__ void send(const float (&sums)[Tile::SUMS], const Order& order) {
        if constexpr (OTHER != RANK) {
            constexpr int PIECES = count_of(OTHER, CUT) / 4, FIRST = (RANK - (RANK > OTHER)) * PIECES;
            const int blocks = order.all_blocks(OTHER);
#pragma unroll
            for (int piece = 0; piece < PIECES; piece++) {
                const float* four = &sums[first_of(OTHER, CUT) + piece * 4];
                store_in_cta(place(FIRST + piece, blocks), make_float4(four[0], four[1], four[2], four[3]), &arrived, OTHER);
            }
        }
        if constexpr (OTHER + 1 < CUT) send<CUT, RANK, OTHER + 1>(sums, order);
    }

    // The first of `sums` are those that this CTA stores then, of all shares; it says from which column of the tile on, and how many.
    template <int CUT, int RANK, class Order>
    __device__ __forceinline__ int2 exchange(float (&sums)[Tile::SUMS], const Order& order) {
        constexpr int OWN = first_of(RANK, CUT), PIECES = count_of(RANK, CUT) / 4;
        wait(&room, 0);
        send<CUT, RANK, 0>(sums, order);
        const int blocks = order.all_blocks(RANK);
        wait(&arrived, 0);
#pragma unroll
        for (int piece = 0; piece < PIECES; piece++) {
            float sum[4] = {};
#pragma unroll
            for (int split = 0; split < CUT; split++) {
                const float* own = &sums[OWN + piece * 4];
                const float4 four = split == RANK ? make_float4(own[0], own[1], own[2], own[3])
                                                  : *place((split - (split > RANK)) * PIECES + piece, blocks);
                sum[0] += four.x, sum[1] += four.y, sum[2] += four.z, sum[3] += four.w;
            }
#pragma unroll
            for (int i = 0; i < 4; i++) sums[piece * 4 + i] = sum[i];
        }
        return make_int2(OWN * 2, PIECES * 8);
    }

    template <class Order>
    __device__ __forceinline__ int2 exchange(float (&sums)[Tile::SUMS], const Order& order) {
        const int rank = cluster_rank();
        if (cluster_size() == 2) {
            if (rank == 0) return exchange<2, 0>(sums, order);
            return exchange<2, 1>(sums, order);
        }
        if (rank == 0) return exchange<4, 0>(sums, order);
        if (rank == 1) return exchange<4, 1>(sums, order);
        if (rank == 2) return exchange<4, 2>(sums, order);
        return exchange<4, 3>(sums, order);
    }

    template <class Order>
    __device__ __forceinline__ void multiply_parked(Ring<Tile::STAGES>& ring, Order& order, Work& work,
                                                    float (&sums)[1][Tile::SUMS]) {
        int numbers[8] = {order.index,  order.whole, order.rows,  order.columns,
                          order.shares, work.token,  work.weight, work.end_token};
        park(parked[thread_index_anew() / 32], numbers);
        if constexpr (Tile::STRADDLES)
            multiply(tile, ring, work.end_block - work.first_block, sums, work.weight);
        else
            multiply(tile, ring, work.end_block - work.first_block, sums);
        fetch(parked[thread_index_anew() / 32], numbers);
        // By a shuffle the compiler knows what is the same for the whole warp. Else it moves every descriptor to uniform registers anew.
        auto same = [&](int which) { return __shfl_sync(0xFFFFFFFF, numbers[which], 0); };
        order.index = same(0), order.whole = same(1), order.rows = same(2), order.columns = same(3), order.shares = same(4);
        work.token = numbers[5], work.weight = numbers[6], work.end_token = numbers[7];
    }

    template <TileOrder Order, OperandsOf<Tile> Operands, StoresColumnsOf<Tile::SUMS> Target>
    __device__ __forceinline__ void run(Order order, const Operands& operands, const Target& d, Early early = {}) {
        let_next_kernel_launch();
        if (threadIdx.x == 0) {
            operands.prefetch_maps();
            tile.initialise();
            if (order.has_share()) {
                const int cut = cluster_size(), rank = cluster_rank();
                const int own = cut == 2 ? count_of_at_run_time<2>(rank) : count_of_at_run_time<4>(rank);
                initialise(&room, cut - 1);
                initialise(&arrived, 1);
                arrive_expecting_bytes(&arrived, (cut - 1) * own * 4 * Tile::MATH_THREADS);
            }
            if (early.weights) load_weights_ahead(tile, order, operands);
        }
        clear_missing_tokens(tile, operands);
        __syncthreads();
        // When all have, they may be sent to. Not where there is no cluster: the wait would be one for all threads of the CTA.
        if (order.has_share()) arrive_at_cluster();
        wait_for_previous_kernel();

        if (threadIdx.x >= Tile::MATH_THREADS) {
            if constexpr (Tile::HUNGRY) keep_registers<Tile::LOADER_REGISTERS>();
            load(tile, order, operands, early.weights ? Tile::WEIGHTS_AHEAD : 0);
            __syncwarp();
            if (order.has_share()) {
                wait_for_cluster();
                if (threadIdx.x == Tile::MATH_THREADS) say_that_there_is_room(order);
                __syncwarp();
            }
        } else {
            if constexpr (Tile::HUNGRY) take_registers<Tile::MATH_REGISTERS>();
            if (order.has_share()) wait_for_cluster();
            Ring<Tile::STAGES> ring;
            for (Work work; order.next(work);) {
                float sums[1][Tile::SUMS];
                multiply_parked(ring, order, work, sums);
                Target part = d;
                if (order.shares) {
                    const int2 columns = exchange(sums[0], order);
                    work.weight += columns.x;
                    part.columns = min(part.columns, work.weight + columns.y);
                }
                store(part, staged[thread_index_anew() / 32], work, warpgroup_index() * WGMMA_ROWS, sums[0]);
            }
        }
    }

   private:
    template <int CUT>
    static __device__ __forceinline__ int count_of_at_run_time(int rank) {
        int count = 0;
#pragma unroll
        for (int i = 0; i < CUT; i++)
            if (i == rank) count = count_of(i, CUT);
        return count;
    }

    // By one thread, which has loaded all.
    template <class Order>
    __device__ __forceinline__ void say_that_there_is_room(const Order& order) {
        const int cut = cluster_size(), rank = cluster_rank();
        const int blocks = order.all_blocks(rank);
        for (int stage = 0; stage < (cut == 2 ? stages_used(2) : stages_used(4)); stage++) tile.wait_for_stage_of(blocks + stage);
        for (int other = 0; other < cut; other++)
            if (other != rank) arrive_in_cta(&room, other);
    }
};

}  // namespace zoo
