// The work of a tile, and where tile `index` of one matrix is. All GEMMs of blackwell/ include it. grouped_tiles.cuh has groups.
//
// at(index, work) is called by a whole warp with a uniform index. It returns false if there is no such tile.
#pragma once

#include "gemm/blackwell/tile.cuh"
#include "gemm/schedule/tile_schedule.cuh"

namespace zoo {

constexpr int BAND = 8;  // rows of tiles in a band: BandedTile

// A tile of D, and the K blocks that a CTA multiplies for it. Rows of operands are coordinates of their tensor maps.
struct TileWork {
    int token, weight;                // first rows of A and of B
    int token_scales, weight_scales;  // first scale tiles of both, down the rows
    int row, column;                  // first row and column of D
    int rows, columns;                // of D that the tile stores
    int group;
    int first_block, end_block;                 // K blocks
    int first_byte = 0, elements = 0x7FFFFFFF;  // where groups divide K: the group's first byte in a row, and its columns of K
};

// A tile's rows of the MMA operands.
template <class Tile>
struct MmaRows {
    int a, b, a_scales, b_scales;  // first row, and first scale tile, of MMA operands A and B
    int columns;                   // of sums that the MMAs compute

    __device__ __forceinline__ explicit MmaRows(const TileWork& work)
        : a(Tile::SWAPPED ? work.weight : work.token), b(Tile::SWAPPED ? work.token : work.weight),
          a_scales(Tile::SWAPPED ? work.weight_scales : work.token_scales),
          b_scales(Tile::SWAPPED ? work.token_scales : work.weight_scales),
          columns((min(Tile::SWAPPED ? work.rows : work.columns, Tile::COLUMNS) + Tile::CHUNK - 1) / Tile::CHUNK * Tile::CHUNK) {}
};

// The K blocks of one CTA of a cluster that splits K. At most 2^24 blocks and 8 CTAs: 32 bits avoid the call of a 64-bit division.
struct KShare {
    int blocks, splits = 1, split = 0;

    __device__ __forceinline__ void assign_to(TileWork& work) const {
        work.first_block = uint32_t(blocks) * split / splits;
        work.end_block = uint32_t(blocks) * (split + 1) / splits;
    }
};

// Tiles of one matrix. A tile has `weights` columns of D, at most Tile::WEIGHTS.
template <class Tile>
struct DenseTiles {
    int M, N, weights;
    KShare share;

    __device__ __forceinline__ bool at(int index, TileWork& work) const {
        const int rows = ceil_div(M, Tile::TOKENS), columns = ceil_div(N, weights);
        if (index >= rows * columns) return false;
        const BandedTile<BAND> banded(index, rows, columns);
        work.token = work.row = banded.row * Tile::TOKENS;
        work.weight = work.column = banded.column * weights;
        work.token_scales = work.token / SCALE_TILE_ROWS;
        work.weight_scales = work.weight / SCALE_TILE_ROWS;
        work.rows = min(Tile::TOKENS, M - work.row);
        work.columns = min(weights, N - work.column);
        work.group = 0;
        share.assign_to(work);
        return true;
    }
};

}  // namespace zoo
