// From sums of gates and of ups to h = silu(gate) * up, f32, straight from the f32 sums; then h times the row's factor, where
// there is one; then either rounded, or quantised: e4m3 with an f32 scale for 1 x 128 of a row.
//
// Tokens as rows: a gate and its up are registers of the same thread. A tile of 128 columns of h is a block of every row, of
// which the four lanes of a quad have all; of 64 it is half of one, and the CTA that has the other half tells its largest. e4m3
// goes through the 2 KiB a warp of store_rows.cuh, there 16 rows x 128 bytes, or the 1 KiB of tiles_in_pairs.cuh.
//
// Weights as rows: they meet in shared memory when they are added up; sixteen neighbouring lanes have a token's block.
#pragma once

#include <cstdint>

#include "common/magnitude.cuh"
#include "common/warp.cuh"
#include "gemm/pipeline/many_tokens.cuh"
#include "gemm/epilogue/store_reduced.cuh"
#include "gemm/epilogue/store_rows.cuh"
#include "gemm/epilogue/straight_fp8b128.cuh"
#include "gemm/pipeline/tiles_in_pairs.cuh"
#include "quantize/swiglu.cuh"

namespace zoo {

// e4m3, rows `stride` apart, and a scale for 128 columns of each, wherever it lies. Where each group has a place for `rows`
// rows, its scales lie apart, too; elsewhere `rows` and scales_group are 0.
struct QuantisedMatrix {
    static constexpr bool IN_BLOCKS = true;
    uint8_t* first;
    int64_t stride;
    int columns;
    float* scales;
    int64_t scales_group, scales_row, scales_block;
    int rows;
    StraightFp8b128 format;

    __device__ __forceinline__ uint8_t* at(int row, int column) const { return first + row * stride + column; }
    __device__ __forceinline__ void store_scale(const Work& work, int row, int column, uint32_t scale) const {
        scales[work.group * scales_group + (row - work.group * rows) * scales_row + column / SCALE_BLOCK * scales_block] =
            __uint_as_float(scale);
    }
};

struct RoundedMatrix : Matrix<bf16> {
    static constexpr bool IN_BLOCKS = false;
};

// Either of the two, as the launch says: what has no scales is bf16.
struct EitherMatrix : QuantisedMatrix {
    __device__ __forceinline__ bool quantised() const { return scales != nullptr; }
    __device__ __forceinline__ Matrix<bf16> rounded() const { return {first, stride, columns}; }
};

// Out: one of these.
template <class Out>
struct Activated {
    Out out;
    const float* row_scale;  // a factor for each row, or null
};

// Tokens as rows.
template <class D, int SUMS>
__device__ __forceinline__ void store_activated(const Matrix<D>& d, StagedRows& staged, const Work& work, int row,
                                                const float (&h)[SUMS]) {
    store_rows(d, staged, work.token + row, work.end_token, work.weight, h);
}

// The bits of the largest magnitude of each of a lane's two rows, of all columns of the tile.
template <int SUMS>
__device__ __forceinline__ void largest_of_rows(const float (&h)[SUMS], uint32_t (&largest)[2]) {
    float amax[2] = {};
#pragma unroll
    for (int j = 0; j < SUMS; j++) amax[j / 2 % 2] = larger_magnitude(amax[j / 2 % 2], h[j]);
#pragma unroll
    for (int half = 0; half < 2; half++) largest[half] = group_max<4>(__float_as_uint(amax[half]));
}

// `largest`: of the whole block. Staged: a warp's rows, a tile's columns each.
template <class Staged, int SUMS>
__device__ __forceinline__ void quantise_and_store(const QuantisedMatrix& q, Staged& staged, const Work& work, int row,
                                                   const uint32_t (&largest)[2], const float (&h)[SUMS]) {
    constexpr int LANES = SUMS * 2 / 16, ROWS = 32 / LANES;  // of a row, 16 bytes each; rows at a time
    const int thread = thread_index_anew(), lane = thread % 32;
    const int first_row = work.token + row + thread % WARPGROUP / 32 * STAGED_ROWS;
    uint32_t scale[2];
    float multiplier[2];
#pragma unroll
    for (int half = 0; half < 2; half++) {
        scale[half] = q.format.scale_of(__uint_as_float(largest[half]));
        multiplier[half] = q.format.multiplier(scale[half]);
    }
    __syncwarp();  // what lay there has been read
#pragma unroll
    for (int j = 0; j < SUMS; j += 2) {  // of eight columns a lane has two
        const int r = j / 2 % 2 * 8 + lane / 4, i = j / 4;
        *reinterpret_cast<uint16_t*>(staged.piece(r, i / 2) + i % 2 * 8 + lane % 4 * 2) =
            Fp8<e4m3>::encode(h[j] * multiplier[j / 2 % 2], h[j + 1] * multiplier[j / 2 % 2]);
    }
#pragma unroll
    for (int half = 0; half < 2; half++) {
        const int r = first_row + half * 8 + lane / 4;
        if (lane % 4 == 0 && r < work.end_token && work.weight % SCALE_BLOCK == 0)
            q.store_scale(work, r, work.weight, scale[half]);
    }
    __syncwarp();
#pragma unroll
    for (int i = 0; i < STAGED_ROWS / ROWS; i++) {
        const int r = i * ROWS + lane / LANES, c = work.weight + lane % LANES * 16;
        const uint4 sixteen = *reinterpret_cast<const uint4*>(staged.piece(r, lane % LANES));
        if (first_row + r < work.end_token && c < q.columns) *reinterpret_cast<uint4*>(q.at(first_row + r, c)) = sixteen;
    }
}

template <int SUMS>
__device__ __forceinline__ void store_activated(const QuantisedMatrix& q, StagedRows& staged, const Work& work, int row,
                                                const float (&h)[SUMS]) {
    static_assert(SUMS * 2 == SCALE_BLOCK);
    uint32_t largest[2];
    largest_of_rows(h, largest);
    quantise_and_store(q, staged, work, row, largest, h);
}

template <int SUMS>
__device__ __forceinline__ void store_activated(const EitherMatrix& d, StagedRows& staged, const Work& work, int row,
                                                const float (&h)[SUMS]) {
    if (d.quantised())
        store_activated(static_cast<const QuantisedMatrix&>(d), staged, work, row, h);
    else
        store_activated(d.rounded(), staged, work, row, h);
}

// The first half of all sums are gates, the other the ups of the same places.
template <class Out, int WAVES, int SUMS>
__device__ __forceinline__ void activate(const Activated<Out>& target, const Work& work, int row,
                                         const float (&sums)[WAVES][SUMS], float (&h)[WAVES * SUMS / 2]) {
    static_assert(WAVES <= 2);
    constexpr int HALF = WAVES * SUMS / 2;
#pragma unroll
    for (int j = 0; j < HALF; j++) h[j] = __fmul_rn(silu(sums[0][j]), sums[(HALF + j) / SUMS][(HALF + j) % SUMS]);
    if (target.row_scale != nullptr) scale_rows(h, target.row_scale, work.token + row, work.end_token);
}

template <int, class Out, int WAVES, int SUMS>
__device__ __forceinline__ void store_waves(const Activated<Out>& target, StagedRows& staged, const Work& work, int row,
                                            float (&sums)[WAVES][SUMS]) {
    float h[WAVES * SUMS / 2];
    activate(target, work, row, sums, h);
    store_activated(target.out, staged, work, row, h);
}

// Half a block: a lane of each four sends the largest of one row, another that of the other, and all learn both of the other CTA's.
__device__ __forceinline__ void send_largest(WordsOfRows& words, uint32_t turn, const uint32_t (&largest)[2]) {
    const int lane = thread_index_anew() % 32;
    if (lane % 4 < 2) words.send(lane % 4 == 0 ? largest[0] : largest[1], lane / 4 + lane % 4 * 8, turn);
}

__device__ __forceinline__ void receive_larger(WordsOfRows& words, uint32_t turn, uint32_t (&largest)[2]) {
    const int lane = thread_index_anew() % 32;
#pragma unroll
    for (int half = 0; half < 2; half++) largest[half] = max(largest[half], words.receive(lane / 4 + half * 8, turn));
}

template <int WAVES, int SUMS>
__device__ __forceinline__ void store_half(const Activated<QuantisedMatrix>& target, StagedHalves& staged, WordsOfRows& words,
                                           const Work& work, int row, uint32_t turn, float (&sums)[WAVES][SUMS]) {
    float h[WAVES * SUMS / 2];
    activate(target, work, row, sums, h);
    uint32_t largest[2];
    largest_of_rows(h, largest);
    send_largest(words, turn, largest);
    receive_larger(words, turn, largest);
    quantise_and_store(target.out, staged, work, row, largest, h);
}

// Weights as rows: eight columns of a row at a time, by all lanes of a warp. `ours`: else nothing is stored.
template <class D>
__device__ __forceinline__ void store_activated(const Matrix<D>& d, const Work&, int row, int column, bool ours,
                                                const float (&h)[8]) {
    if (ours) store_eight(d, row, column, h);
}

__device__ __forceinline__ void store_activated(const QuantisedMatrix& q, const Work& work, int row, int column, bool ours,
                                                const float (&h)[8]) {
    float amax = 0;
#pragma unroll
    for (int i = 0; i < 8; i++) amax = larger_magnitude(amax, h[i]);
    const uint32_t scale = q.format.scale_of(__uint_as_float(group_max<16>(__float_as_uint(amax))));
    const float multiplier = q.format.multiplier(scale);
    uint32_t words[2];
#pragma unroll
    for (int w = 0; w < 2; w++) {
        const uint32_t low = Fp8<e4m3>::encode(h[4 * w] * multiplier, h[4 * w + 1] * multiplier);
        const uint32_t high = Fp8<e4m3>::encode(h[4 * w + 2] * multiplier, h[4 * w + 3] * multiplier);
        words[w] = high << 16 | low;
    }
    if (!ours) return;
    *reinterpret_cast<uint2*>(q.at(row, column)) = make_uint2(words[0], words[1]);
    if (column % SCALE_BLOCK == 0) q.store_scale(work, row, column, scale);
}

__device__ __forceinline__ void store_activated(const EitherMatrix& d, const Work& work, int row, int column, bool ours,
                                                const float (&h)[8]) {
    if (d.quantised())
        store_activated(static_cast<const QuantisedMatrix&>(d), work, row, column, ours, h);
    else
        store_activated(d.rounded(), work, row, column, ours, h);
}

// By the CTAs of a cluster, each some of the tokens. To be quantised, a token's whole block, whose parts are of PARTS of them.
template <int CTAS, int THREADS, class Tile, class Out>
__device__ __forceinline__ void add_up_and_store(const LaidSums<Tile>& laid, const Activated<Out>& target, const Work& work) {
    constexpr int HALF = Tile::WEIGHTS / 2, PARTS = Out::IN_BLOCKS ? SCALE_BLOCK / HALF : 1, SPLITS = CTAS / PARTS;
    constexpr int EIGHTS = PARTS * HALF / 8, ALL = Tile::TOKENS * EIGHTS;
    static_assert(ALL % 32 == 0 && THREADS % 32 == 0, "a block is of one warp, whose lanes stay together");
    static_assert(!Out::IN_BLOCKS || PARTS * HALF == SCALE_BLOCK && CTAS == PARTS * SPLITS);
    const int rank = CTAS > 1 ? cluster_rank() : 0, weight = work.weight - rank % PARTS * HALF;
    for (int i = rank * THREADS + threadIdx.x; i < ALL; i += CTAS * THREADS) {
        if (work.token + i / 32 * 32 / EIGHTS >= work.end_token) break;  // none of the warp's tokens exists
        const int r = i / EIGHTS, c = i % EIGHTS * 8, row = work.token + r, column = weight + c;
        const bool there = row < work.end_token;
        float gates[8], ups[8], h[8];
        laid.template add_up<SPLITS, PARTS>(r, c % HALF, gates, c / HALF);
        laid.template add_up<SPLITS, PARTS>(r, HALF + c % HALF, ups, c / HALF);
#pragma unroll
        for (int e = 0; e < 8; e++) h[e] = __fmul_rn(silu(gates[e]), ups[e]);
        if (target.row_scale != nullptr) {
            const float factor = there ? target.row_scale[row] : 0;
#pragma unroll
            for (int e = 0; e < 8; e++) h[e] = __fmul_rn(h[e], factor);
        }
        store_activated(target.out, work, row, column, there && column < target.out.columns, h);
    }
}

}  // namespace zoo
