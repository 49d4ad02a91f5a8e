// The epilogue warps' way to the sums: a lane reads its row from tensor memory, a chunk of columns at a time. pipeline.cuh includes it.
#pragma once

#include "common/cluster.cuh"
#include "common/tensor_memory.cuh"
#include "gemm/blackwell/schedule/tiles.cuh"

namespace zoo {

// Columns that the next tile's sums will overwrite are read first. Then the MMA warp may start the next tile.
template <class Tile>
struct SumsReader {
    static constexpr int CHUNK = Tile::CHUNK;
    int tiles = 0;  // read

    // Calls take(first column, sums) for each chunk that the MMAs computed.
    template <class Take>
    __device__ __forceinline__ void read(Tile& tile, const TileWork& work, Take take) {
        const int used = MmaRows<Tile>(work).columns, chunks = (used + CHUNK - 1) / CHUNK, second = tiles % 2;
        const uint32_t quarter = (threadIdx.x / 32 % 4) * 32,
                       sums = tile.tensor_memory + (second ? Tile::SECOND_SUMS : 0) + (quarter << 16);
        // The first sums share their last columns, the second sums their first columns.
        const int shared = !Tile::OVERLAPPED ? chunks
                           : second          ? (Tile::COLUMNS - Tile::SECOND_SUMS) / CHUNK
                                             : chunks - Tile::SECOND_SUMS / CHUNK;
        wait(&tile.sums_full[second], tiles / 2 % 2);
        fence_after_taking_over();
        if (shared <= 0) release(tile, second);
#pragma unroll 1
        for (int i = 0; i < chunks; i++) {
            const int chunk = second ? i : chunks - 1 - i;
            float values[CHUNK];
            if constexpr (CHUNK == 16) load_16_columns(values, sums + chunk * CHUNK);
            if constexpr (CHUNK == 32) load_32_columns(values, sums + chunk * CHUNK);
            wait_for_loads();
            if (i + 1 == min(shared, chunks)) release(tile, second);
            take(chunk * CHUNK, values);
        }
        tiles++;
    }

    // Calls take(i, sums of two chunks): neighbours 2 i and 2 i + 1, or chunk i of the first half of the columns and of the second half.
    template <class Take>
    __device__ __forceinline__ void read_two_chunks(Tile& tile, const TileWork& work, bool neighbours, Take take) {
        // Chunks of the first sums: those before the second sums, and those that the second sums share.
        constexpr int ALONE = Tile::SECOND_SUMS / CHUNK, SHARED = (Tile::COLUMNS - Tile::SECOND_SUMS) / CHUNK;
        const int used = MmaRows<Tile>(work).columns, chunks = (used + CHUNK - 1) / CHUNK, count = (chunks + 1) / 2,
                  second = tiles % 2;
        const uint32_t quarter = (threadIdx.x / 32 % 4) * 32,
                       sums = tile.tensor_memory + (second ? Tile::SECOND_SUMS : 0) + (quarter << 16);
        const int shared = !Tile::OVERLAPPED ? count
                           : second          ? (neighbours ? (SHARED + 1) / 2 : SHARED)
                                             : (neighbours ? count - ALONE / 2 : chunks - ALONE);
        wait(&tile.sums_full[second], tiles / 2 % 2);
        fence_after_taking_over();
        if (shared <= 0) release(tile, second);
#pragma unroll 1
        for (int i = 0; i < count; i++) {
            const int at = second ? i : count - 1 - i;
            const int first = neighbours ? 2 * at : at, other = neighbours ? 2 * at + 1 : count + at;
            float values[2][CHUNK] = {};
            load_32_columns(values[0], sums + first * CHUNK);
            if (other < chunks) load_32_columns(values[1], sums + other * CHUNK);
            wait_for_loads();
            if (i + 1 == min(shared, count)) release(tile, second);
            take(at, values);
        }
        tiles++;
    }

   private:
    __device__ __forceinline__ void release(Tile& tile, int second) const {
        fence_before_handing_over();
        __syncwarp();
        if (elected()) {
            if constexpr (Tile::CTAS == 1) arrive(&tile.sums_empty[second]);
            if constexpr (Tile::CTAS > 1) arrive_in_cta(&tile.sums_empty[second], 0);
        }
        __syncwarp();
    }
};

}  // namespace zoo
