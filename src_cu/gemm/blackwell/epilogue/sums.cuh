// How epilogue warps read sums: a lane reads its row from tensor memory, a chunk of columns at a time. pipeline.cuh includes it.
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

    // Calls take(first column, sums) for each chunk that the MMAs computed. While a chunk is taken, the next one is loaded.
    template <class Take>
    __device__ __forceinline__ void read(Tile& tile, const TileWork& work, Take take) {
        const int used = MmaRows<Tile>(work).columns, chunks = (used + CHUNK - 1) / CHUNK, second = tiles % 2;
        const uint32_t quarter = (threadIdx.x / 32 % 4) * 32,
                       sums = tile.tensor_memory + (second ? Tile::SECOND_SUMS : 0) + (quarter << 16);
        // The first sums share their last columns, the second sums their first columns.
        const int shared = !Tile::OVERLAPPED ? chunks
                           : second          ? (Tile::COLUMNS - Tile::SECOND_SUMS) / CHUNK
                                             : chunks - Tile::SECOND_SUMS / CHUNK;
        const auto chunk = [&](int i) { return (second ? i : chunks - 1 - i) * CHUNK; };
        const auto step = [&](int i, float (&values)[CHUNK], float (&next)[CHUNK]) {
            if (i + 1 == min(shared, chunks)) release(tile, second);
            if (i + 1 < chunks) load(next, sums + chunk(i + 1));
            take(chunk(i), values);
        };
        wait(&tile.sums_full[second], tiles / 2 % 2);
        fence_after_taking_over();
        if (shared <= 0) release(tile, second);
        float even[CHUNK], odd[CHUNK];
        load(even, sums + chunk(0));
#pragma unroll 1
        for (int i = 0; i < chunks; i += 2) {
            step(i, even, odd);
            if (i + 1 < chunks) step(i + 1, odd, even);
        }
        tiles++;
    }

    // Calls take(i, sums of two chunks): neighbours 2 i and 2 i + 1, or chunk i of the first half of the columns and of the second half. If there
    // is no second chunk, its sums are those of the last chunk.
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
            float values[2][CHUNK];
            load_32_columns(values[0], sums + first * CHUNK);
            load_32_columns(values[1], sums + min(other, chunks - 1) * CHUNK);
            wait_for_loads();
            if (i + 1 == min(shared, count)) release(tile, second);
            take(at, values);
        }
        tiles++;
    }

   private:
    // The wait follows at once: ptxas then waits where a register is first used. It would wait at the end of the basic block otherwise.
    __device__ __forceinline__ static void load(float (&values)[CHUNK], uint32_t address) {
        if constexpr (CHUNK == 16) load_16_columns(values, address);
        if constexpr (CHUNK == 32) load_32_columns(values, address);
        wait_for_loads();
    }

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
