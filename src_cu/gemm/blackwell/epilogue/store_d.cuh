// The epilogue of GEMMs whose result is D, and split K. Kernels without SwiGLU and without a quantised result include it.
#pragma once

#include "gemm/blackwell/epilogue/finish.cuh"
#include "gemm/blackwell/pipeline.cuh"

namespace zoo {

// Finishes and stores chunks of a lane's sums. Tokens as rows: the lane has neighbouring columns of a row of D. SWAPPED: it has neighbouring
// rows of a column, and the 32 lanes of a warp write a row.
template <class Tile>
struct StoreChunk {
    const Finish& finish;
    const TileWork& work;
    int lane;
    Finish::Row row;  // tokens as rows: the lane's

    __device__ __forceinline__ StoreChunk(const Finish& finish, const TileWork& work, int lane)
        : finish(finish), work(work), lane(lane), row(finish.row_of(work.row + lane, work.group, lane < work.rows)) {}

    __device__ __forceinline__ void operator()(int first, float (&sums)[Tile::CHUNK]) const {
        if constexpr (Tile::SWAPPED) {
            if (lane >= work.columns) return;
            const int token = work.row + first, column = work.column + lane, count = work.rows - first;
            // Rows that the tile does not have hold arbitrary sums.
#pragma unroll
            for (int i = 0; i < Tile::CHUNK; i++) sums[i] = i < count ? sums[i] : 0;
            finish.finish_rows(sums, token, work.group, column, count);
            finish.store_rows(sums, token, column, count);
        } else {
            if (lane >= work.rows) return;
            const int column = work.column + first, count = work.columns - first;
            finish.finish_columns(sums, row, work.group, column, count);
            finish.store_columns(sums, row.row, column, count);
        }
    }
};

// For groups without columns of K, where no MMA makes sums.
template <class Tile>
__device__ __forceinline__ void store_zeros(const Finish& finish, const TileWork& work, int lane) {
    static_assert(!Tile::SWAPPED);
    if (lane >= work.rows) return;
    const float zeros[SEGMENT] = {};
#pragma unroll 1
    for (int i = 0; i < work.columns; i += SEGMENT)
        finish.store_columns(zeros, work.row + lane, work.column + i, work.columns - i);
}

// The epilogue of a tile whose K is not split.
template <class Tile>
struct StoreD {
    Tile& tile;
    const Finish& finish;
    const Pipeline<Tile>& pipeline;

    __device__ __forceinline__ void operator()(SumsReader<Tile>& reader, const TileWork& work, int lane) const {
        reader.read(tile, work, StoreChunk<Tile>(finish, work, pipeline.rank * LANES + lane));
    }
};

// Split K: the sums of one CTA's share of K, in shared memory. They replace its stages, which no MMA reads any more.
template <class Tile>
struct SplitKSums {
    float sums[Tile::COLUMNS][LANES];
    static_assert(Tile::SWAPPED && sizeof(sums) <= sizeof(Tile::stages));

    __device__ __forceinline__ static SplitKSums& of(Tile& tile) { return *reinterpret_cast<SplitKSums*>(tile.stages); }

    __device__ __forceinline__ void write(const TileWork& work, int lane, int first, const float (&values)[Tile::CHUNK]) {
#pragma unroll
        for (int i = 0; i < Tile::CHUNK; i++)
            if (first + i < work.rows) sums[first + i][lane] = values[i];
    }

    // Adds up and stores tokens `split`, split + splits, ... when all CTAs have written. The order of the CTAs fixes the sum's bits.
    __device__ __forceinline__ void store(const Finish& finish, const TileWork& work, int lane, int split, int splits) const {
        if (lane >= work.columns) return;
        const float alpha = finish.alpha_of(work.group);
        for (int token = split; token < work.rows; token += splits) {
            float sum = 0;
            for (int i = 0; i < splits; i++) {
                const float part = load_float_in_cta(&sums[token][lane], i);
                sum = i == 0 ? part : __fadd_rn(sum, part);
            }
            const int row = work.row + token, column = work.column + lane;
            finish.store_one(finish.finished(sum, {row, alpha, finish.scale_of(row)}, work.group, column), row, column);
        }
    }

   private:
    __device__ __forceinline__ static float load_float_in_cta(const float* pointer, uint32_t rank) {
        float v;
        asm volatile("ld.shared::cluster.f32 %0, [%1];" : "=f"(v) : "r"(address_in_cta(pointer, rank)) : "memory");
        return v;
    }
};

// The body of a dense GEMM. If tokens are few, the CTAs of a cluster may split K.
template <class Tile>
__device__ __forceinline__ void compute_d(Tile& tile, const DenseTiles<Tile>& tiles, const auto& elements, const auto& scales,
                                          uint32_t types, int K, const Finish& finish, bool persistent) {
    const int splits = tiles.share.splits, split = tiles.share.split;
    Pipeline<Tile> pipeline{tile, Tile::CTAS * splits, walk_of(persistent, false)};
    pipeline.run(tiles, elements, scales, types, K, [&](SumsReader<Tile>& reader, const TileWork& work, int lane) {
        const StoreChunk<Tile> store(finish, work, pipeline.rank * LANES + lane);
        reader.read(tile, work, [&](int first, auto& sums) {
            if (!Tile::SWAPPED || splits == 1)
                store(first, sums);
            else if constexpr (Tile::SWAPPED)
                SplitKSums<Tile>::of(tile).write(work, lane, first, sums);
        });
    });
    if constexpr (Tile::SWAPPED) {
        if (splits > 1) {
            synchronise_cluster();
            TileWork work;
            const int lane = int(threadIdx.x) - (THREADS - LANES);
            if (lane >= 0 && tiles.at(blockIdx.x / splits, work))
                SplitKSums<Tile>::of(tile).store(finish, work, lane, split, splits);
        }
    }
    pipeline.free_tensor_memory();
}

}  // namespace zoo
