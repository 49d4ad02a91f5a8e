// The epilogue of a k_grouped GEMM: stores sums in D (G, M, N), or adds them to D. The copy engine stores boxes of rows x 128 bytes, while the warp
// goes on to its next tile. L2 adds f32 sums to D, so that no warp reads D.
#pragma once

#include <cstdint>

#include "common/matrix_store.cuh"
#include "common/tensor_copy.cuh"
#include "gemm/hopper_fp8/store_rows.cuh"

namespace zoo {

// D (G, M, N).
template <class D>
struct GroupedOutput {
    const TensorMap& map;  // its elements are words of 4 bytes
    OutputMatrix<D> first;
    int64_t group_stride;
    bool accumulate;

    __device__ __forceinline__ OutputMatrix<D> of(int group) const {
        OutputMatrix<D> matrix = first;
        matrix.first += group * group_stride * ELEMENT_BYTES<D>;
        return matrix;
    }
};

// A warp's buffers, from which the copy engine stores: pieces of ROWS_ rows x 128 bytes. The 16 bytes of column c of row r are at c ^ (r % 8).
//
// A warp with one piece of 16 rows (2 KiB) waits for each copy before it writes the next piece. If it has three pieces of 8 rows (3 KiB), the
// copy engine reads two pieces while the warp writes the third. A fourth piece does not fit: four stages and three pieces use 229376 of 232448
// bytes. The fourth pieces of eight warps would need 8192 more.
template <int PIECES_, int ROWS_>
struct alignas(1024) StoreBuffers {
    static constexpr int PIECES = PIECES_, ROWS = ROWS_;
    uint8_t bytes[PIECES][ROWS * 128];

    __device__ __forceinline__ uint8_t* at(int piece, int row, int column) {
        return bytes[piece] + row * 128 + (column ^ (ROWS == 8 ? row : row % 8)) * 16;
    }

    // Lane 0 calls this before its warp writes piece `count` of a tile.
    static __device__ __forceinline__ void wait_until_free(int count) {
        if constexpr (PIECES == 1) {
            wait_until_stores_have_read();
        } else if (count == 0) {  // and the other pieces of the previous tile
            asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");
        } else {
            asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(PIECES - 1) : "memory");
        }
    }
    // Lane 0 calls this after it has issued the copy of a piece: each copy is a group.
    static __device__ __forceinline__ void close_copy() {
        if constexpr (PIECES > 1) asm volatile("cp.async.bulk.commit_group;" ::: "memory");
    }
};

// Writes 128 bytes of ROWS of a warp's 16 rows to a piece. The first column is part * 128 / ELEMENT_BYTES<D>, the first row half * 8.
template <class D, class Buffers, int SUMS>
__device__ __forceinline__ void write_piece(Buffers& buffers, int piece, int part, int half, const float (&sums)[SUMS],
                                            int lane) {
    constexpr int ROWS = Buffers::ROWS, BELOW = ROWS / 8, BESIDE = 4 / BELOW;
    if constexpr (ELEMENT_BYTES<D> == 2) {  // matrices of 8 x 8: BELOW of them one below the other, BESIDE side by side
#pragma unroll
        for (int i = 0; i < 8 / BESIDE; i++) {
            uint32_t matrices[4];
#pragma unroll
            for (int m = 0; m < 4; m++) {
                const float* two = &sums[part * 32 + (i * BESIDE + m / BELOW) * 4 + (half + m % BELOW) * 2];
                matrices[m] = encode_two<D>(two[0], two[1]);
            }
            store_matrices(buffers.at(piece, lane % ROWS, BESIDE * i + lane / ROWS), matrices);
        }
    } else {
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const float* four = &sums[part * 16 + i * 4];
#pragma unroll
            for (int below = 0; below < BELOW; below++) {
                uint8_t* to = buffers.at(piece, lane / 4 + 8 * below, 2 * i + lane % 4 / 2) + lane % 2 * 8;
                *reinterpret_cast<float2*>(to) = make_float2(four[2 * (half + below)], four[2 * (half + below) + 1]);
            }
        }
    }
}

template <int PASS, class D, class Buffers, int SUMS>
__device__ __forceinline__ void store(const GroupedOutput<D>& d, Buffers& buffers, const Work& work, int row,
                                      float (&sums)[SUMS]) {
    constexpr bool ADDED_BY_L2 = ELEMENT_BYTES<D> == 4;
    constexpr int PARTS = SUMS * 2 * ELEMENT_BYTES<D> / 128, HALVES = 16 / Buffers::ROWS;
    if (d.accumulate && !ADDED_BY_L2) add_rows(sums, d.of(work.group), work.token + row, work.end_token, work.weight);
    const int thread = reread_thread_index(), lane = thread % 32;
    const int first_row = work.token + row + thread % WARPGROUP / 32 * 16;
    const MatrixOfMap matrix{d.map, work.group};
#pragma unroll
    for (int part = 0; part < PARTS; part++)
#pragma unroll
        for (int half = 0; half < HALVES; half++) {
            const int count = (PASS * PARTS + part) * HALVES + half, piece = count % Buffers::PIECES;
            if (lane == 0) Buffers::wait_until_free(count);
            __syncwarp();
            write_piece<D>(buffers, piece, part, half, sums, lane);
            let_copies_see_shared_memory();
            __syncwarp();
            if (lane == 0) {
                const int column = work.weight * ELEMENT_BYTES<D> / 4 + part * 32;
                if (d.accumulate && ADDED_BY_L2)
                    add_box(matrix, buffers.bytes[piece], column, first_row + half * 8);
                else
                    store_box(matrix, buffers.bytes[piece], column, first_row + half * 8);
                Buffers::close_copy();
            }
        }
}

// Two calls instead of a loop: the compiler would not unroll it, and index registers.
template <class D, class Buffers, int PASSES, int SUMS>
__device__ __forceinline__ void store_passes(const GroupedOutput<D>& d, Buffers& buffers, const Work& work, int row,
                                             float (&sums)[PASSES][SUMS]) {
    static_assert(PASSES <= 2);
    store<0>(d, buffers, work, row, sums[0]);
    if constexpr (PASSES == 2) store<1>(d, buffers, work, row + WGMMA_ROWS, sums[1]);
}

// Stores a warpgroup's sums through the buffers of its warps.
template <class Target, class Tile, class Buffers>
concept StoresKGroupedSums = requires(const Target& target, Buffers& buffers, const Work& work,
                                      float (&sums)[Tile::PASSES][Tile::SUMS]) { store_passes(target, buffers, work, 0, sums); };

}  // namespace zoo
