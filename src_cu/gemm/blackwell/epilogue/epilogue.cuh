// The epilogue of MX and NVFP4 GEMMs with SwiGLU or a quantised result: from sums to a result. epilogues.cu and gather_epilogues.cu include it.
#pragma once

#include <type_traits>

#include "gemm/blackwell/epilogue/results.cuh"
#include "gemm/blackwell/epilogue/shared_sums.cuh"
#include "gemm/blackwell/gated/gates_and_ups.cuh"

namespace zoo {

// RESULT of a table: the format of the result.
enum class ResultFormat { d, mxfp8, nvfp4 };

template <ResultFormat>
struct ResultOf {
    using Argument = int64_t;  // not used
    using Type = RoundedResult;
};
template <>
struct ResultOf<ResultFormat::mxfp8> {
    using Argument = Mxfp8Result::Argument;
    using Type = QuantisedResult<Mxfp8Result>;
};
template <>
struct ResultOf<ResultFormat::nvfp4> {
    using Argument = Nvfp4Result::Argument;
    using Type = QuantisedResult<Nvfp4Result>;
};

template <class Result, class Argument>
__device__ __forceinline__ Result result_of(const Finish& finish, uint8_t* scales, int columns, int type, Argument argument,
                                            int argument_stride) {
    if constexpr (std::is_same_v<Result, RoundedResult>)
        return {finish, columns};
    else
        return {finish.d, finish.d_stride, scales, columns, type, argument, argument_stride};
}

// What the main loop multiplies for a tile of the result: one or two works of GatedTiles, or the tile itself.
template <class Tiles, class ResultTiles>
__device__ __forceinline__ Tiles works_of(const ResultTiles& tiles, bool in_halves) {
    if constexpr (std::is_same_v<Tiles, ResultTiles>)
        return tiles;
    else
        return {tiles, tiles.N, !in_halves};
}

template <bool GATED_, class Result>
struct Epilogue {
    static constexpr bool GATED = GATED_, INTERLEAVED_HAS_TWO = false;
    const Finish& finish;
    const GatedActivation& gated;
    const Result& result;

    // Tokens as rows: by the epilogue warps. `index` is the thread's row of the tile.
    template <class Tile>
    __device__ __forceinline__ void store(SumsReader<Tile>& reader, Tile& tile, const TileWork& work, int index) const {
        const auto to = result.for_group(work.group);
        const TileRow tile_row{work, index};
        const Finish::Row row = row_of(tile_row);
        const bool stores = index / LANES * LANES < work.rows;  // some of the CTA's 128 rows exist
        if constexpr (GATED) {
            const int end = work.column + work.columns / 2;
            reader.read_two_chunks(tile, work, gated.interleaved, [&](int i, float (&sums)[2][SEGMENT]) {
                const int column = work.column + i * SEGMENT;
                float h[SEGMENT] = {};
                if (tile_row.exists()) gated.h_of_segment(sums, row, work.group, column, end, h);
                if (stores) to.store_segment(tile_row, column, h);
            });
        } else {
            const int end = work.column + work.columns;
            reader.read(tile, work, [&](int first, float (&sums)[SEGMENT]) {
                const int column = work.column + first;
                float finished[SEGMENT] = {};
                if (tile_row.exists()) {
#pragma unroll
                    for (int i = 0; i < SEGMENT; i += 8)
                        if (column + i < end) finish.add_bias_to_eight(&sums[i], row, work.group, column + i);
#pragma unroll
                    for (int i = 0; i < SEGMENT; i++) finished[i] = __fmul_rn(sums[i], row.scale);
                }
                if (stores) to.store_segment(tile_row, column, finished);
            });
        }
    }

    // SWAPPED: by all warps of all CTAs that split K, when their sums are in shared memory. `work` is a tile of the result.
    template <class Shared>
    __device__ __forceinline__ void store_shared(const Shared& shared, const TileWork& work, int split, int splits) const {
        const auto to = result.for_group(work.group);
        const int lane = threadIdx.x % 32, end = work.column + work.columns;
        shared.for_each_token(work, to.PADS, split, splits, [&](int token) {
            const TileRow tile_row{work, token};
            const Finish::Row row = row_of(tile_row);
            float four[4] = {}, ups[4] = {};
            if (tile_row.exists()) {
                shared.add_up(0, token, splits, four);
                if (GATED && !gated.interleaved) shared.add_up(1, token, splits, ups);
            }
            if (GATED && gated.interleaved) {
                const int column = work.column + 2 * lane;
                float h[2] = {};
#pragma unroll
                for (int i = 0; i < 2; i++)
                    if (column < end) h[i] = gated.h(four[2 * i], four[2 * i + 1], row, work.group, column + i);
                to.store_by_warp(tile_row, column, h);
            } else {
                const int column = work.column + 4 * lane;
#pragma unroll
                for (int i = 0; i < 4; i++) {
                    if (column >= end) break;
                    four[i] = GATED ? gated.h(four[i], ups[i], row, work.group, column + i)
                                    : finish.finished(four[i], row, work.group, column + i);
                }
                to.store_by_warp(tile_row, column, four);
            }
        });
    }

   private:
    __device__ __forceinline__ Finish::Row row_of(const TileRow& row) const {
        return finish.row_of(row.row(), row.work.group, row.exists());
    }
};

}  // namespace zoo
