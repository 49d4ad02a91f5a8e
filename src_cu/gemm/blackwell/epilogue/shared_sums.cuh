// GEMMs whose result needs neighbouring columns: the kernel's body, and how the sums of few tokens pass through shared memory.
// Kernels with SwiGLU or a quantised result include it.
//
// In a SWAPPED tile a lane has the sums of one weight row. So all sums go to shared memory, where the stages were. Then each warp takes a
// token, adds up what the CTAs that split K have of it, and each lane has four neighbouring columns:
//
//     sums, tokens x 128 weights      | first | second |      the second has ups, if gates and ups are halves of B
//     a lane's four of each             gggg    uuuu   or     gugu
#pragma once

#include "common/cluster.cuh"
#include "gemm/blackwell/pipeline.cuh"

namespace zoo {

template <class Tile>
struct SharedSums {
    static constexpr int WARPS = THREADS / 32, FOUR = LANES / 32;
    static_assert(FOUR == 4);
    float sums[2][Tile::COLUMNS][LANES];
    static_assert(Tile::SWAPPED && sizeof(sums) <= sizeof(Tile::stages));

    __device__ __forceinline__ static SharedSums& of(Tile& tile) { return *reinterpret_cast<SharedSums*>(tile.stages); }

    __device__ __forceinline__ void write(const TileWork& work, int product, int lane, int first,
                                          const float (&values)[Tile::CHUNK]) {
#pragma unroll
        for (int i = 0; i < Tile::CHUNK; i++)
            if (first + i < work.rows) sums[product][first + i][lane] = values[i];
    }

    // Adds up what all CTAs have of columns 4 lane to 4 lane + 3 of a token. The order of the CTAs fixes the sums' bits.
    __device__ __forceinline__ void add_up(int product, int token, int splits, float (&four)[4]) const {
        const float* from = &sums[product][token][threadIdx.x % 32 * 4];
        load_four(from, 0, splits, four);
#pragma unroll 1
        for (int i = 1; i < splits; i++) {
            float part[4];
            load_four(from, i, splits, part);
#pragma unroll
            for (int j = 0; j < 4; j++) four[j] = __fadd_rn(four[j], part[j]);
        }
    }

    // Calls what(token) for this warp's tokens. If `pads`, they include the rows of padding of a scale tile.
    template <class What>
    __device__ __forceinline__ void for_each_token(const TileWork& work, bool pads, int split, int splits, What what) const {
        const int tokens = pads ? SCALE_TILE_ROWS : work.rows;
#pragma unroll 1
        for (int token = split * WARPS + int(threadIdx.x) / 32; token < tokens; token += splits * WARPS) what(token);
    }

   private:
    __device__ __forceinline__ static void load_four(const float* from, uint32_t rank, int splits, float (&v)[4]) {
        if (splits == 1) {
            const float4 own = *reinterpret_cast<const float4*>(from);
            v[0] = own.x, v[1] = own.y, v[2] = own.z, v[3] = own.w;
        } else {
            asm volatile("ld.shared::cluster.v4.f32 {%0, %1, %2, %3}, [%4];"
                         : "=f"(v[0]), "=f"(v[1]), "=f"(v[2]), "=f"(v[3])
                         : "r"(address_in_cta(from, rank))
                         : "memory");
        }
    }
};

// The kernel's body. `result_tiles` are tiles of D, and `tiles` gives what the main loop multiplies for each of them. A SWAPPED tile of gates and
// ups needs two works, or one if they are interleaved and the tile has 64 columns of the result.
template <class Tile, class ResultTiles, class Tiles, class Elements, class Scales, class Epilogue>
__device__ __forceinline__ void compute_result(Tile& tile, ResultTiles result_tiles, const Tiles& tiles, KShare share,
                                               const Elements& elements, const Scales& scales, uint32_t types, int K,
                                               const Epilogue& epilogue, Walk walk) {
    const int splits = share.splits, split = share.split;
    Pipeline<Tile> pipeline{tile, Tile::CTAS * splits, walk};
    if constexpr (Tile::SWAPPED) {
        SharedSums<Tile>& shared = SharedSums<Tile>::of(tile);
        const int products = Epilogue::GATED && (Epilogue::INTERLEAVED_HAS_TWO || !epilogue.gated.interleaved) ? 2 : 1;
        int seen = 0;
        pipeline.run(tiles, elements, scales, types, K, [&](SumsReader<Tile>& reader, const TileWork& work, int lane) {
            if (++seen < products) return;  // the next product needs the stages
            wait(&tile.sums_full[products - 1], 0);
#pragma unroll 1
            for (int i = 0; i < products; i++)
                reader.read(tile, work, [&](int first, const auto& sums) { shared.write(work, i, lane, first, sums); });
        });
        pipeline.synchronise();
        TileWork work = {};
        if (result_tiles.at(blockIdx.x / splits, work)) epilogue.store_shared(shared, work, split, splits);
    } else {
        pipeline.run(tiles, elements, scales, types, K, [&](SumsReader<Tile>& reader, const TileWork& work, int lane) {
            epilogue.store(reader, tile, work, pipeline.rank * LANES + lane);
        });
    }
    pipeline.free_tensor_memory();
}

}  // namespace zoo
