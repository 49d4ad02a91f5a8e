// Where the operands of a product with 4-bit weights come from: packed weights by plain bulk copies, for they lie as a tile wants them;
// tokens by tensor copies, or through an index by threads.
#pragma once

#include <cstdint>
#include <type_traits>

#include "common/async_copy.cuh"
#include "common/tensor_copy.cuh"
#include "gemm/four_bit/fragments.cuh"
#include "gemm/four_bit/nothing.cuh"
#include "gemm/four_bit/tile.cuh"
#include "gemm/load/operands.cuh"

namespace zoo {

// B: for each group `tiles` tiles of 64 rows, each `chunks` chunks along K, one after the other.
struct PackedMatrices {
    const uint8_t* first;
    int tiles, chunks;
};

// Scales of A for 1 x 128. They may lie anywhere: strides in scales; `group_stride`: from one group's to the next one's, less row_stride
// times the rows between them.
struct TokenScales {
    const float* first;
    int64_t row_stride, block_stride, group_stride;
    int blocks;

    __device__ __forceinline__ const float* of(int row, int group, int block) const {
        return first + row * row_stride + group * group_stride + block * block_stride;
    }
};

template <class Tile>
constexpr bool PROMOTES_IF_ASKED = requires { requires Tile::PROMOTION == Promotion::if_asked; };

template <class Tile>
struct FourBitOperands {
    const TensorMap& a;
    PackedMatrices b;
    int token_rows;  // of a box; 0 where a tile MAY_GATHER and does
    std::conditional_t<Tile::SCALED, TokenScales, Nothing> scales;
    std::conditional_t<PROMOTES_IF_ASKED<Tile>, EachBlockIfAsked, EachBlock> promotion;

    // Of a tile that may.
    __device__ __forceinline__ bool gathers() const { return token_rows == 0; }

    // By one thread: CHUNKS from `chunk` on. What lies behind the last is not copied, but for tokens: there zeros come. A tile says how
    // many chunks of K 128 bytes of a token are.
    __device__ __forceinline__ void load(Tile& tile, int stage, const Work& work, int chunk) const {
        const int chunks = max(min(b.chunks - chunk, Tile::CHUNKS), 0), first = work.weight / CHUNK_ROWS;
        const int groups = min(b.tiles - first, Tile::HEIGHTS);
        const uint32_t bytes = chunks * Tile::CHUNK_BYTES;
        Barrier* full = &tile.full[stage];
        arrive_expecting_bytes(full, groups * bytes + (Tile::GATHERS ? 0 : Tile::LINES * token_rows * 128));
        const uint8_t* from = b.first + ((int64_t(work.group) * b.tiles + first) * b.chunks + chunk) * Tile::CHUNK_BYTES;
        if (bytes > 0)
            for (int i = 0; i < groups; i++)
                load_bytes(tile.weights[stage][i], from + int64_t(i) * b.chunks * Tile::CHUNK_BYTES, bytes, full);
        load_tokens(tile, stage, work, chunk);
    }
    __device__ __forceinline__ void load_tokens(Tile& tile, int stage, const Work& work, int chunk) const {
        if constexpr (Tile::MAY_GATHER)
            if (gathers()) return;
        if constexpr (!Tile::GATHERS)
#pragma unroll
            for (int line = 0; line < Tile::LINES; line++)
                load_box(tile.tokens[stage][line], a, (chunk / Tile::CHUNKS_A_LINE + line) * (Tile::CHUNKS_A_LINE * CHUNK),
                         work.token, &tile.full[stage]);
    }

    // By all threads, before they synchronise: rows that no box brings. As clear_missing_tokens().
    __device__ __forceinline__ void clear_missing_tokens(Tile& tile) const {
        if constexpr (Tile::MAY_GATHER)
            if (gathers()) return;
        if constexpr (!Tile::GATHERS) {
            for (int piece = token_rows * 8 + threadIdx.x; piece < Tile::TOKENS * 8; piece += Tile::THREADS)
#pragma unroll
                for (int stage = 0; stage < Tile::STAGES; stage++)
#pragma unroll
                    for (int line = 0; line < Tile::LINES; line++)
                        reinterpret_cast<uint4*>(tile.tokens[stage][line])[piece] = uint4{};
            let_copies_see_shared_memory();
        }
    }
};

// By one thread, or by its warp where the order takes one.
template <class Tile, class Order>
__device__ __forceinline__ void load_operands(Tile& tile, Order order, const auto& operands, int lane) {
    Ring<Tile::STAGES> ring;
    for (Work work; order.next(work);) {
        if (OfWarps<Order> && lane > 0) continue;
        for (int chunk = work.first_block * Tile::CHUNKS; chunk < work.end_block * Tile::CHUNKS; chunk += Tile::CHUNKS) {
            tile.wait_until_empty(ring);
            operands.load(tile, ring.stage, work, chunk);
            ring.advance();
        }
    }
}

// By a warp of its own: the scales of a tile's tokens, stage after stage; zeros for rows and blocks that do not exist.
template <class Tile, class Order>
__device__ __forceinline__ void load_token_scales(Tile& tile, Order order, const TokenScales& scales, int lane) {
    Ring<Tile::STAGES> ring;
    for (Work work; order.next(work);) {
        for (int chunk = work.first_block * Tile::CHUNKS; chunk < work.end_block * Tile::CHUNKS; chunk += Tile::CHUNKS) {
            tile.wait_until_empty(ring);
#pragma unroll
            for (int half = 0; half < 2; half++) {
                const int block = chunk / Tile::CHUNKS_A_LINE + half;
                const int rows = block < scales.blocks ? work.end_token - work.token : 0;
                const float* place = scales.of(work.token + lane, work.group, block);
                const uint32_t to = shared_address(tile.scales.of[ring.stage][half]);
#pragma unroll
                for (int token = lane; token < Tile::TOKENS; token += 32, place += 32 * scales.row_stride)
                    copy_4_bytes(to + token * sizeof(float), place, token < rows);
            }
            arrive_after_copies(&tile.full[ring.stage]);
            ring.advance();
        }
        __syncwarp();
    }
}

// A, of which row i of D takes row index[i]; a row of zeros where that is none of A's.
struct IndexedRows {
    const uint8_t* first;
    int64_t stride;  // in bytes
    int rows, row_bytes;
    const int* index;
};

// Which rows of A are COUNT tokens of a tile, each STEP further. Row 0 stands for one that is none of A's.
template <int COUNT, int STEP>
struct RowsOfTokens {
    static_assert(COUNT <= 32);
    uint32_t rows[COUNT > 0 ? COUNT : 1], exist = 0;  // a bit for each

    __device__ __forceinline__ RowsOfTokens(const IndexedRows& a, const Work& work, int first, bool by_index) {
        const int* index = a.index + work.token + first;
        const int left = work.end_token - work.token - first;
#pragma unroll
        for (int i = 0; i < COUNT; i++) {
            int row = -1;
            if (i * STEP < left) row = by_index ? index[i * STEP] : work.token + first + i * STEP;
            const bool exists = uint32_t(row) < uint32_t(a.rows);
            rows[i] = exists ? row : 0;
            exist |= uint32_t(exists) << i;
        }
    }
};

// Eight lanes copy 128 bytes of a row, 16 each, to where a tensor copy would; each keeps its tokens' rows in registers, so that a copy takes
// four instructions. Where a token has scales, one thread copies them: that alone, where rows do not come by an index.
template <class Tile, class Order>
__device__ __forceinline__ void gather_tokens(Tile& tile, Order order, const IndexedRows& a, const auto& scales, int thread,
                                              bool by_index = true) {
    constexpr int THREADS = Tile::GATHERING_THREADS, STEP = THREADS / 8;
    constexpr int COUNT = (Tile::TOKENS + STEP - 1) / STEP, SCALES = Tile::SCALED ? (Tile::TOKENS + THREADS - 1) / THREADS : 0;
    constexpr int LINES_AT_ONCE = Tile::SCALED ? 1 : Tile::LINES;  // registers reach no further
    static_assert(STEP % 4 == 0);
    const int piece = thread % 8, first = thread / 8;
    Ring<Tile::STAGES> ring;
    for (Work work; order.next(work);) {
        const RowsOfTokens<COUNT, STEP> mine(a, work, first, by_index);
        const RowsOfTokens<SCALES, THREADS> scaled(a, work, thread, by_index);
        for (int chunk = work.first_block * Tile::CHUNKS; chunk < work.end_block * Tile::CHUNKS; chunk += Tile::CHUNKS) {
            tile.wait_until_empty(ring);
#pragma unroll LINES_AT_ONCE
            for (int line = 0; line < Tile::LINES; line++) {
                const int block = chunk / Tile::CHUNKS_A_LINE + line, byte = block * 128 + piece * 16;
                const uint32_t exist = byte < a.row_bytes ? mine.exist : 0;
                const uint8_t* from = a.first + byte;
                const uint32_t to = shared_address(tile.tokens[ring.stage][line]) + first * 128 + (piece ^ first % 8) * 16;
#pragma unroll
                for (int i = 0; i < COUNT; i++)
                    if (by_index && ((i + 1) * STEP <= Tile::TOKENS || first + i * STEP < Tile::TOKENS))
                        copy_16_bytes((i * STEP % 8 == 0 ? to : to ^ 64) + i * STEP * 128,
                                      from + mine.rows[i] * uint64_t(a.stride), exist >> i & 1);
                if constexpr (Tile::SCALED) {
                    const bool within = block * 128 < a.row_bytes;
#pragma unroll
                    for (int i = 0; i < SCALES; i++) {
                        const bool exists = within && scaled.exist >> i & 1;
                        if ((i + 1) * THREADS <= Tile::TOKENS || thread + i * THREADS < Tile::TOKENS)
                            copy_4_bytes(shared_address(tile.scales.of[ring.stage][line] + thread + i * THREADS),
                                         exists ? scales.of(scaled.rows[i], by_index ? 0 : work.group, block) : scales.first,
                                         exists);
                    }
                }
            }
            arrive_after_copies(&tile.full[ring.stage]);
            ring.advance();
        }
        __syncwarp();
    }
}

}  // namespace zoo
