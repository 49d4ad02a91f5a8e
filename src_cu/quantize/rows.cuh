// The direction `rows`: blocks lie along K. Load, quantise, store; every part is a template parameter.
//
// A lane reads 16 bytes a time, so LANES neighbouring lanes share a block and a warp reads a piece of PIECE columns,
// 512 bytes of a row. It reads LOADS pieces before it uses any; which ones, the scale layout says.
//
//   a piece, 2-byte input:   lane   0   1   2   3 | 4   5   6   7 | ... | 28  29  30  31
//                            column 0   8  16  24 | 32 ..         |     | 224 ..     255
//                                   `-- block --'
//
// All LANES lanes of a block know its scale; lane i % LANES keeps that of piece i, so after LANES pieces a store of one
// byte a lane writes the scales of all of them. Elements are narrower than x: STORERS neighbours hold 16 bytes of q, so
// after STORERS pieces they exchange, and each stores 16 bytes of one. No shared memory, no barrier: a warp's share is
// its own.
#pragma once

#include <cstdint>

#include "common/dependent_launch.cuh"
#include "common/global_memory.cuh"
#include "common/variant.cuh"
#include "common/warp.cuh"
#include "quantize/input.cuh"
#include "quantize/scale_layout.cuh"

namespace zoo {

// x (M, K) and q (M, K) with rows x_stride and q_stride elements apart, 16-byte aligned; K a multiple of the block.
template <class X, class Format, Layout LAYOUT, int THREADS, int LOADS>
__device__ __forceinline__ void quantize_rows(const uint8_t* x, uint8_t* q, uint8_t* scales, int64_t M, int64_t K,
                                              int64_t x_stride, int64_t q_stride, int64_t scales_stride) {
    using In = Input<X>;
    constexpr int X_BYTES = 16 / In::VALUES;
    constexpr int LANES = Format::BLOCK / In::VALUES;
    constexpr int PIECE = 32 * In::VALUES;
    constexpr int WORDS = In::VALUES / Format::ELEMENTS_PER_WORD;
    constexpr int STORERS = 4 / WORDS;
    using Scales = ScaleLayout<LAYOUT, Format::BLOCK, LOADS, PIECE>;
    static_assert(THREADS % 32 == 0);
    static_assert(LOADS % LANES == 0, "every lane of a block stores the same number of scales");
    static_assert(LANES % STORERS == 0, "lanes that exchange share a block: both are inside x, or neither");

    let_next_kernel_launch();
    const int lane = threadIdx.x % 32;
    const uint32_t share = blockIdx.x * (THREADS / 32) + threadIdx.x / 32;
    const Corner corner = Scales::corner(share, K);
    wait_for_previous_kernel();
    if (corner.row >= Scales::rows_end(M)) return;
    const uint64_t row = corner.row, column = corner.column + lane * In::VALUES;
    // Of the share, from this lane on; zero or negative where there is nothing.
    const int rows_left = min(M - int64_t(row), int64_t(Scales::ROWS));
    const int columns_left = min(K - int64_t(column), int64_t(Scales::COLUMNS));
    auto inside = [&](int piece) { return Scales::row(piece) < rows_left && Scales::column(piece) < columns_left; };

    x += (row * x_stride + column) * X_BYTES;
    uint4 data[LOADS];
#pragma unroll
    for (int i = 0; i < LOADS; i++) {
        data[i] = make_uint4(0, 0, 0, 0);
        if (inside(i)) data[i] = load_16_bytes(x + (Scales::row(i) * x_stride + Scales::column(i)) * X_BYTES);
    }

    q += row * q_stride + (column - lane % STORERS * In::VALUES);
    uint32_t words[STORERS][WORDS];
    uint32_t own_scale = 0;
#pragma unroll
    for (int i = 0; i < LOADS; i++) {
        const uint32_t magnitude = group_max<LANES>(In::largest_magnitude(data[i]));
        const uint32_t scale = Format::scale_of(In::magnitude_to_float(magnitude));
        if (lane % LANES == i % LANES) own_scale = inside(i) ? scale : 0;  // 0: padding
        if (i % LANES == LANES - 1) {
            const int own = i - (LANES - 1) + lane % LANES;
            Scales::store(scales, scales_stride, row + Scales::row(own), column + Scales::column(own), K, own_scale);
        }

        float values[In::VALUES];
        In::to_float(data[i], values);
        const float multiplier = Format::multiplier(scale);
#pragma unroll
        for (int w = 0; w < WORDS; w++)
            words[i % STORERS][w] = Format::encode(values + w * Format::ELEMENTS_PER_WORD, multiplier);
        if (i % STORERS == STORERS - 1) {
            group_transpose(words, lane);
            const int own = i - (STORERS - 1) + lane % STORERS;
            if (inside(own)) store_16_bytes(q + Scales::row(own) * q_stride + Scales::column(own), words[0]);
        }
    }
}

}  // namespace zoo
