// Quantises rows where a block is split across lanes. Included by kernels/rows.cu, for FP8 elements and for f32 input.
//
// A lane reads cells of 16 bytes. LANES neighbouring lanes share a block. A warp reads a piece of PIECE columns, 512 bytes
// of a row, with one instruction. It issues LOADS pieces before it uses the first. The scale layout chooses which pieces.
//
//   a piece, 2-byte input:   lane   0   1   2   3 | 4   5   6   7 | ... | 28  29  30  31
//                            column 0   8  16  24 | 32 ..         |     | 224 ..     255
//                                   `-- block --'
//
// The cost of a scale decides which lanes compute it:
//
//   DIVIDES_SCALES = false   All LANES lanes of the block compute it. Lane i % LANES keeps the scale of piece i, so after LANES
//                            pieces each lane stores one scale.
//   DIVIDES_SCALES = true    OWNERS of the lanes compute one scale each (rows/split_scales.cuh).
//
// Elements are narrower than x: STORERS neighbours hold 16 bytes of q. After STORERS pieces these lanes exchange words, and
// each lane stores 16 bytes of one piece. Warps share nothing, so the kernel needs neither shared memory nor a barrier.
#pragma once

#include <cstdint>

#include "common/dependent_launch.cuh"
#include "common/global_memory.cuh"
#include "common/input_values.cuh"
#include "common/warp.cuh"
#include "quantize/rows/split_scales.cuh"
#include "quantize/scales/scale_layout.cuh"

namespace zoo {

// Rows of x are x_stride elements apart, rows of q q_stride bytes. K is a multiple of 16. x is 16-byte aligned. q is
// 16-byte aligned, too, if its rows hold whole 16 bytes.
template <class X, int THREADS, int LOADS, class Scales, class Format>
__device__ __forceinline__ void quantize_split_blocks(Scales layout_of_scales, Format format, const uint8_t* x, uint8_t* q,
                                                      uint8_t* scales, int64_t M, int64_t K, int64_t x_stride, int64_t q_stride,
                                                      int64_t scales_stride) {
    using In = Input<X>;
    using Scale = typename Format::Scale;
    constexpr int X_BYTES = 16 / In::VALUES;
    constexpr int LANES = Format::BLOCK / In::VALUES;
    constexpr int OWNERS = LANES < LOADS ? LANES : LOADS;
    using Split = SplitScales<LANES, OWNERS>;
    constexpr int PIECE = 32 * In::VALUES;
    constexpr int CELL_BYTES = In::VALUES / Format::ELEMENTS_PER_BYTE;  // bytes of q that come from a lane's cell
    constexpr int WORDS = CELL_BYTES < 4 ? 1 : CELL_BYTES / 4;
    constexpr int STORERS = 16 / CELL_BYTES;
    constexpr int STORE_ELEMENTS = 16 * Format::ELEMENTS_PER_BYTE;
    static_assert(THREADS % 32 == 0);
    static_assert(LOADS % OWNERS == 0, "every owner stores the same number of scales");
    static_assert(LOADS % STORERS == 0, "the last pieces are exchanged and stored, too");

    const int lane = threadIdx.x % 32;
    let_next_kernel_launch();
    const uint32_t share = blockIdx.x * (THREADS / 32) + threadIdx.x / 32;
    const Corner corner = layout_of_scales.corner(share, K);
    wait_for_previous_kernel();
    if (corner.row >= layout_of_scales.rows_end(M)) return;
    const uint64_t row = corner.row, column = corner.column + lane * In::VALUES;
    // Rows and columns of the share from this lane on. Zero or negative: nothing is left.
    const int rows_left = min(M - int64_t(row), int64_t(layout_of_scales.rows()));
    const int columns_left = min(K - int64_t(column), int64_t(layout_of_scales.columns()));
    auto inside = [&](int piece) {
        return layout_of_scales.row(piece) < rows_left && layout_of_scales.column(piece) < columns_left;
    };

    x += (row * x_stride + column) * X_BYTES;
    uint4 data[LOADS];
#pragma unroll
    for (int i = 0; i < LOADS; i++) {
        data[i] = make_uint4(0, 0, 0, 0);
        if (inside(i)) data[i] = load_16_bytes(x + (layout_of_scales.row(i) * x_stride + layout_of_scales.column(i)) * X_BYTES);
    }
    format.prepare();

    const uint64_t block_column = column - lane % LANES * In::VALUES;
    q += row * q_stride + (column - lane % STORERS * In::VALUES) / Format::ELEMENTS_PER_BYTE;
    uint32_t words[STORERS][WORDS];
    uint32_t own_scale = 0;
    Split split = {};
#pragma unroll
    for (int i = 0; i < LOADS; i++) {
        if constexpr (Format::DIVIDES_SCALES) {
            if (i % OWNERS == 0) {
                uint32_t magnitudes[OWNERS];
#pragma unroll
                for (int j = 0; j < OWNERS; j++) magnitudes[j] = In::largest(data[i + j]);
                split.template find<In>(format, magnitudes, lane);
                const int own = i + Split::own_block(lane);
                const uint64_t own_row = row + layout_of_scales.row(own),
                               own_column = block_column + layout_of_scales.column(own);
                const bool padding = own_row >= M || own_column >= K;
                if (Split::stores(lane) && own_row < layout_of_scales.rows_end(M))
                    layout_of_scales.store(reinterpret_cast<Scale*>(scales), scales_stride, own_row, own_column, K,
                                           padding ? 0 : split.scale);
            }
            format.template encode_loaded<In>(data[i], split.multiplier_of(i % OWNERS), words[i % STORERS]);
        } else {
            const uint32_t magnitude = group_max<LANES>(In::largest_magnitude(data[i]));
            const uint32_t scale = format.scale_of(In::magnitude_to_float(magnitude));
            if (lane % LANES == i % LANES) own_scale = inside(i) ? scale : 0;  // 0 for padding
            if (i % LANES == LANES - 1) {
                const int own = i - (LANES - 1) + lane % LANES;
                layout_of_scales.store(scales, scales_stride, row + layout_of_scales.row(own),
                                       column + layout_of_scales.column(own), K, own_scale);
            }

            float values[In::VALUES];
            In::to_float(data[i], values);
            const float multiplier = format.multiplier(scale);
#pragma unroll
            for (int w = 0; w < WORDS; w++)
                words[i % STORERS][w] = format.encode(values + w * Format::ELEMENTS_PER_WORD, multiplier);
        }

        if (i % STORERS == STORERS - 1) {
            const int own = i - (STORERS - 1) + lane % STORERS;
            auto target = [&] {
                return q + layout_of_scales.row(own) * q_stride + layout_of_scales.column(own) / Format::ELEMENTS_PER_BYTE;
            };
            uint32_t store_words[4];
            if constexpr (CELL_BYTES == 2) {
                group_transpose_halves(words, lane, store_words);
            } else {
                group_transpose(words, lane);
#pragma unroll
                for (int w = 0; w < 4; w++) store_words[w] = words[w / WORDS][w % WORDS];
            }
            if constexpr (Format::BLOCK % STORE_ELEMENTS == 0) {
                if (inside(own)) store_16_bytes(target(), store_words);
            } else if (layout_of_scales.row(own) < rows_left) {
                const int64_t left = K - int64_t(column - lane % STORERS * In::VALUES) - layout_of_scales.column(own);
                if (left >= STORE_ELEMENTS && q_stride % 16 == 0) {
                    store_16_bytes(target(), store_words);
                } else {
                    if (left >= STORE_ELEMENTS / 2) store_8_bytes(target(), store_words);
                    if (left >= STORE_ELEMENTS) store_8_bytes(target() + 8, store_words + 2);
                }
            }
        }
    }
}

}  // namespace zoo
