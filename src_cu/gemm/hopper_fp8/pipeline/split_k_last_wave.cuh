// The pipeline of many tokens with split K in the last wave: CTAs compute whole tiles, as in many_tokens.cuh, and clusters split K of the tiles
// that fill no wave. The launch chooses clusters of 2 or 4 CTAs, or none: then nothing is split. Included by dense_split_k_last_wave.cu.
//
//     CTA 0 of a cluster    | tile      0 | tile    264 | tile 396, first half of K  | sends | adds, stores columns   0 ... 63
//     CTA 1                 | tile      1 | tile    265 | tile 396, second half of K | sends | adds, stores columns  64 ... 127
//
// Each CTA stores some columns of the split tile. It sends its other sums out of its registers to the same threads of the CTAs that store them.
// Received sums replace the stages that a CTA releases first among its last stages, long before the sums come. The copying thread announces
// that there is room. Sums are added in the sequence of the shares of K, starting from zero: the same call always gives the same bits.
// The number of SMs decides which tiles are split.
#pragma once

#include <cstdint>

#include "common/cluster.cuh"
#include "common/dependent_launch.cuh"
#include "common/registers.cuh"
#include "gemm/hopper_fp8/mainloop.cuh"
#include "gemm/hopper_fp8/producer.cuh"
#include "common/spill_to_shared.cuh"
#include "gemm/hopper_fp8/store_rows.cuh"
#include "gemm/schedule/tile_schedule.cuh"

namespace zoo {

// A CTA's whole tiles, one for each wave, then its share of a split tile. The launch has as many clusters as split tiles, or more.
template <class Tile, int BAND>
struct SplitKLastWaveSchedule {
    static constexpr bool READS_NO_MEMORY = true;
    EvenTiles<Tile> cut;
    int rows, columns, blocks;  // tiles down and along D; K blocks
    int index = blockIdx.x;
    int whole;            // tiles before this index are not split
    bool shares = false;  // next() returned a share last

    __device__ __forceinline__ SplitKLastWaveSchedule(int M, int N, int blocks)
        : cut(M), rows(ceil_div(M, Tile::TOKENS)), columns(ceil_div(N, Tile::WEIGHTS)), blocks(blocks) {
        whole = rows * columns;
        if (cluster_size() > 1) whole -= whole % gridDim.x;
    }

    __device__ __forceinline__ int first_block(int split) const { return int(int64_t(blocks) * split / cluster_size()); }

    __device__ __forceinline__ int split_tile() const { return whole + blockIdx.x / cluster_size(); }
    __device__ __forceinline__ bool has_share() const { return cluster_size() > 1 && split_tile() < rows * columns; }

    __device__ __forceinline__ bool next(Work& work) {
        if (shares) return false;
        int tile = index;
        if (index >= whole) {
            if (!has_share()) return false;
            tile = split_tile();
            shares = true;
        }
        const BandedTile<BAND> at(tile, rows, columns);
        const int rank = cluster_rank();
        work = {cut.first(at.row),
                at.column * Tile::WEIGHTS,
                cut.end(at.row),
                0,
                shares ? first_block(rank) : 0,
                shares ? first_block(rank + 1) : blocks};
        index += gridDim.x;
        return true;
    }

    // The K blocks that a CTA of this cluster multiplies, its share included.
    __device__ __forceinline__ int all_blocks(int rank) const {
        return int(whole / gridDim.x) * blocks + first_block(rank + 1) - first_block(rank);
    }
};

// Stores the columns of a tile before `columns`.
template <class Target, int SUMS>
concept StoresColumnsOf = StoresPassOf<Target, SUMS> && requires(Target part) { part.columns = min(part.columns, 0); };

template <class Tile>
struct SplitKLastWave {
    static_assert(!Tile::SWAPPED && Tile::PASSES == 1);

    // CTA `rank` of `cut` CTAs stores a thread's sums from here on: a multiple of 16 columns, which a warp stores at once.
    static __host__ __device__ constexpr int first_of(int rank, int cut) {
        return rank == cut ? Tile::SUMS : (Tile::SUMS * rank / cut + 7) / 8 * 8;
    }
    static __host__ __device__ constexpr int count_of(int rank, int cut) { return first_of(rank + 1, cut) - first_of(rank, cut); }

    // A piece is four registers of all math threads. Pieces fill the tokens of a stage, then its weights, then the next stage.
    static constexpr int PIECE_BYTES = Tile::MATH_THREADS * 16;
    static constexpr int IN_TOKENS = Tile::TOKENS * SCALE_BLOCK / PIECE_BYTES,
                         IN_STAGE = IN_TOKENS + Tile::WEIGHTS * SCALE_BLOCK / PIECE_BYTES;
    static __host__ __device__ constexpr int stages_used(int cut) {
        return ((cut - 1) * (count_of(0, cut) / 4) + IN_STAGE - 1) / IN_STAGE;
    }
    static_assert(stages_used(2) <= Tile::STAGES && stages_used(4) <= Tile::STAGES);

    Tile tile;
    RowBuffer buffers[Tile::MATH_WARPS];
    Barrier room, arrived;  // the other CTAs have room; their sums have arrived
    alignas(16) int spilled[Tile::MATH_WARPS][8];

    // The address of a piece in a CTA that has multiplied `blocks` K blocks.
    __device__ __forceinline__ float4* received(int piece, int blocks) {
        const int stage = (blocks + piece / IN_STAGE) % Tile::STAGES, within = piece % IN_STAGE;
        uint8_t* bytes = within < IN_TOKENS ? tile.tokens[stage] + within * PIECE_BYTES
                                            : tile.weights[stage] + (within - IN_TOKENS) * PIECE_BYTES;
        return reinterpret_cast<float4*>(bytes) + threadIdx.x;
    }

    // The math warps of CTA RANK of CUT send OTHER its sums. A CTA has pieces of lower ranks first.
    template <int CUT, int RANK, int OTHER, class Schedule>
    __device__ __forceinline__ void send(const float (&sums)[Tile::SUMS], const Schedule& schedule) {
        if constexpr (OTHER != RANK) {
            constexpr int PIECES = count_of(OTHER, CUT) / 4, FIRST = (RANK - (RANK > OTHER)) * PIECES;
            const int blocks = schedule.all_blocks(OTHER);
#pragma unroll
            for (int piece = 0; piece < PIECES; piece++) {
                const float* four = &sums[first_of(OTHER, CUT) + piece * 4];
                store_in_cta(received(FIRST + piece, blocks), make_float4(four[0], four[1], four[2], four[3]), &arrived, OTHER);
            }
        }
        if constexpr (OTHER + 1 < CUT) send<CUT, RANK, OTHER + 1>(sums, schedule);
    }

    // Moves the complete sums that this CTA stores to the front of `sums`. Returns their first column in the tile, and how many columns they are.
    template <int CUT, int RANK, class Schedule>
    __device__ __forceinline__ int2 exchange(float (&sums)[Tile::SUMS], const Schedule& schedule) {
        constexpr int OWN = first_of(RANK, CUT), PIECES = count_of(RANK, CUT) / 4;
        wait(&room, 0);
        send<CUT, RANK, 0>(sums, schedule);
        const int blocks = schedule.all_blocks(RANK);
        wait(&arrived, 0);
#pragma unroll
        for (int piece = 0; piece < PIECES; piece++) {
            float sum[4] = {};
#pragma unroll
            for (int split = 0; split < CUT; split++) {
                const float* own = &sums[OWN + piece * 4];
                const float4 four = split == RANK ? make_float4(own[0], own[1], own[2], own[3])
                                                  : *received((split - (split > RANK)) * PIECES + piece, blocks);
                sum[0] += four.x, sum[1] += four.y, sum[2] += four.z, sum[3] += four.w;
            }
#pragma unroll
            for (int i = 0; i < 4; i++) sums[piece * 4 + i] = sum[i];
        }
        return make_int2(OWN * 2, PIECES * 8);
    }

    template <class Schedule>
    __device__ __forceinline__ int2 exchange(float (&sums)[Tile::SUMS], const Schedule& schedule) {
        const int rank = cluster_rank();
        if (cluster_size() == 2) {
            if (rank == 0) return exchange<2, 0>(sums, schedule);
            return exchange<2, 1>(sums, schedule);
        }
        if (rank == 0) return exchange<4, 0>(sums, schedule);
        if (rank == 1) return exchange<4, 1>(sums, schedule);
        if (rank == 2) return exchange<4, 2>(sums, schedule);
        return exchange<4, 3>(sums, schedule);
    }

    template <class Schedule>
    __device__ __forceinline__ void multiply_spilling(Ring<Tile::STAGES>& ring, Schedule& schedule, Work& work,
                                                      float (&sums)[1][Tile::SUMS]) {
        int numbers[8] = {schedule.index,  schedule.whole, schedule.rows, schedule.columns,
                          schedule.shares, work.token,     work.weight,   work.end_token};
        spill(spilled[reread_thread_index() / 32], numbers);
        if constexpr (Tile::STRADDLES)
            multiply(tile, ring, work.end_block - work.first_block, sums, work.weight);
        else
            multiply(tile, ring, work.end_block - work.first_block, sums);
        reload(spilled[reread_thread_index() / 32], numbers);
        // A shuffle tells the compiler that values are equal in the warp: else it moves every descriptor to uniform registers again.
        auto uniform = [&](int which) { return __shfl_sync(0xFFFFFFFF, numbers[which], 0); };
        schedule.index = uniform(0), schedule.whole = uniform(1), schedule.rows = uniform(2), schedule.columns = uniform(3),
        schedule.shares = uniform(4);
        work.token = numbers[5], work.weight = numbers[6], work.end_token = numbers[7];
    }

    template <TileSchedule Schedule, OperandsOf<Tile> Operands, StoresColumnsOf<Tile::SUMS> Target>
    __device__ __forceinline__ void run(Schedule schedule, const Operands& operands, const Target& d, EarlyLoads early = {}) {
        let_next_kernel_launch();
        if (threadIdx.x == 0) {
            operands.prefetch_maps();
            tile.initialise();
            if (schedule.has_share()) {
                const int cut = cluster_size(), rank = cluster_rank();
                const int own = cut == 2 ? runtime_count<2>(rank) : runtime_count<4>(rank);
                initialise(&room, cut - 1);
                initialise(&arrived, 1);
                arrive_expecting_bytes(&arrived, (cut - 1) * own * 4 * Tile::MATH_THREADS);
            }
            if (early.weights) load_weights_ahead(tile, schedule, operands);
        }
        clear_missing_tokens(tile, operands);
        __syncthreads();
        // CTAs receive sums after all have arrived. Without a cluster, the wait would synchronise all threads of the CTA.
        if (schedule.has_share()) arrive_at_cluster();
        wait_for_previous_kernel();

        if (threadIdx.x >= Tile::MATH_THREADS) {
            if constexpr (Tile::REALLOCATES_REGISTERS) lower_registers_to<Tile::LOADER_REGISTERS>();
            load(tile, schedule, operands, early.weights ? Tile::WEIGHTS_AHEAD : 0);
            __syncwarp();
            if (schedule.has_share()) {
                wait_for_cluster();
                if (threadIdx.x == Tile::MATH_THREADS) announce_room(schedule);
                __syncwarp();
            }
        } else {
            if constexpr (Tile::REALLOCATES_REGISTERS) raise_registers_to<Tile::MATH_REGISTERS>();
            if (schedule.has_share()) wait_for_cluster();
            Ring<Tile::STAGES> ring;
            for (Work work; schedule.next(work);) {
                float sums[1][Tile::SUMS];
                multiply_spilling(ring, schedule, work, sums);
                Target part = d;
                if (schedule.shares) {
                    const int2 columns = exchange(sums[0], schedule);
                    work.weight += columns.x;
                    part.columns = min(part.columns, work.weight + columns.y);
                }
                store(part, buffers[reread_thread_index() / 32], work, warpgroup_index() * WGMMA_ROWS, sums[0]);
            }
        }
    }

   private:
    template <int CUT>
    static __device__ __forceinline__ int runtime_count(int rank) {
        int count = 0;
#pragma unroll
        for (int i = 0; i < CUT; i++)
            if (i == rank) count = count_of(i, CUT);
        return count;
    }

    // The copying thread calls this, after it has loaded its last K block.
    template <class Schedule>
    __device__ __forceinline__ void announce_room(const Schedule& schedule) {
        const int cut = cluster_size(), rank = cluster_rank();
        const int blocks = schedule.all_blocks(rank);
        for (int stage = 0; stage < (cut == 2 ? stages_used(2) : stages_used(4)); stage++) tile.wait_for_stage_of(blocks + stage);
        for (int other = 0; other < cut; other++)
            if (other != rank) arrive_in_cta(&room, other);
    }
};

}  // namespace zoo
