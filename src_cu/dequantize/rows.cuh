// q (R, C) and its scales to numbers: element * scale, rounded once in float32, then to the dtype of the output. Blocks are along C.
// All kernels of dequantize/kernels use it.
//
// A lane writes 16 bytes (VALUES elements) at a time, and a warp a piece of PIECE = 32 * VALUES columns. Loads are narrower than stores,
// because elements have an eighth to a half of the output's bytes. A warp's share is PIECES neighbouring pieces of a row, at constant
// offsets from the first address.
//
//     a row     | piece 0: lane 0, lane 1, ... lane 31 | piece 1 | ... | piece PIECES - 1 |       one warp
//
// Three numbers describe the layout of scales: `row` and `block` are the steps from row to row and from block to block. If `blocked`, tiles
// have 128 x 4 bytes and `row` is the step between rows of tiles.
#pragma once

#include <cstdint>

#include "common/dependent_launch.cuh"
#include "dequantize/output.cuh"

namespace zoo {

struct ScaleSteps {
    int64_t row, block;
    bool blocked;

    __device__ __forceinline__ int64_t offset(int32_t r, int32_t b) const {
        if (blocked) return r / 128 * row + b / 4 * int64_t(512) + r % 32 * 16 + r % 128 / 32 * 4 + b % 4;
        return r * row + b * block;
    }

    // The step over BLOCKS blocks. In tiles the step covers whole tiles.
    template <int BLOCKS>
    __device__ __forceinline__ int64_t along() const {
        return blocked && BLOCKS % 4 == 0 ? BLOCKS / 4 * 512 : BLOCKS * block;
    }
};

// Loads 2, 4 or 8 bytes into the low bytes of the result.
template <int BYTES>
__device__ __forceinline__ uint2 load_narrow(const uint8_t* address) {
    uint2 v = {0, 0};
    if constexpr (BYTES == 2) asm volatile("ld.global.u16 %0, [%1];" : "=r"(v.x) : "l"(address));
    if constexpr (BYTES == 4) asm volatile("ld.global.u32 %0, [%1];" : "=r"(v.x) : "l"(address));
    if constexpr (BYTES == 8) asm volatile("ld.global.v2.u32 {%0, %1}, [%2];" : "=r"(v.x), "=r"(v.y) : "l"(address));
    static_assert(BYTES == 2 || BYTES == 4 || BYTES == 8);
    return v;
}

// There are less than 2^31 shares, and C rounded up to whole shares fits 31 bits. q_stride counts bytes, out_stride elements. SQUARE rows
// share a plain scale; in the blocked layout each row has its own copy.
template <class Out, int THREADS, int PIECES, int SQUARE, class Format>
__device__ __forceinline__ void dequantize_rows(Format format, const uint8_t* q, const typename Format::Scale* scales,
                                                uint8_t* out, int32_t R, int32_t C, int64_t q_stride, int64_t out_stride,
                                                ScaleSteps steps) {
    using To = Output<Out>;
    constexpr int VALUES = 16 / To::BYTES, PIECE = 32 * VALUES, SHARE = PIECES * PIECE;
    constexpr int PER_BYTE = Format::ELEMENTS_PER_BYTE, Q_BYTES = VALUES / PER_BYTE;
    static_assert(Format::BLOCK % VALUES == 0, "the elements of a store share a scale");

    let_next_kernel_launch();
    const int lane = threadIdx.x % 32;
    const uint32_t across = (C + SHARE - 1) / SHARE;
    const uint32_t share = blockIdx.x * (THREADS / 32) + threadIdx.x / 32;
    const int32_t row = share / across, column = share % across * SHARE + lane * VALUES;
    const int32_t left = C - column;  // zero or negative beyond the row
    q += row * q_stride + column / PER_BYTE;
    out += (row * out_stride + column) * To::BYTES;
    scales += steps.offset(SQUARE > 1 && !steps.blocked ? row / SQUARE : row, column / Format::BLOCK);
    const int64_t scale_step = steps.along<PIECE / Format::BLOCK>();
    // Rows may start at any byte. Then each element is loaded and stored alone.
    const bool aligned = (reinterpret_cast<uint64_t>(q) & (Q_BYTES - 1)) == 0 && (reinterpret_cast<uint64_t>(out) & 15) == 0;
    wait_for_previous_kernel();
    if (row >= R) return;

    auto whole = [&](int piece) { return aligned && piece * PIECE + VALUES <= left; };
    uint2 data[PIECES];
    typename Format::Scale scale[PIECES];
#pragma unroll
    for (int i = 0; i < PIECES; i++)
        if (whole(i)) data[i] = load_narrow<Q_BYTES>(q + i * (PIECE / PER_BYTE));
#pragma unroll
    for (int i = 0; i < PIECES; i++)
        if (whole(i)) scale[i] = scales[i * scale_step];
    format.prepare();
#pragma unroll
    for (int i = 0; i < PIECES; i++) {
        if (!whole(i)) continue;
        float values[VALUES];
        format.decode(data[i], values);
        format.scale(values, scale[i]);
        To::store(out + i * 512, values);
    }
    // The end of a row that does not fill a store.
#pragma unroll 1
    for (int i = 0; i < PIECES; i++) {
        if (whole(i)) continue;
#pragma unroll 1
        for (int e = i * PIECE; e < min(i * PIECE + VALUES, left); e++) {
            const uint32_t byte = q[e / PER_BYTE];
            float value[1];
            format.decode(make_uint2(PER_BYTE == 2 ? byte >> e % 2 * 4 : byte, 0), value);
            format.scale(value, scales[i * scale_step]);
            To::store_one(out + e * To::BYTES, value[0]);
        }
    }
}

}  // namespace zoo
