// q (R, C) and its scales -> element * scale, rounded once in float32, then to the output's dtype. Blocks lie along C.
//
// A lane writes 16 bytes a time, VALUES elements, and a warp a piece of PIECE = 32 * VALUES columns. So loads are
// narrower than stores: elements are a half to an eighth as wide as the output. A warp's share is PIECES neighbouring
// pieces of a row: their addresses are steps from the first one's.
//
// The layout of the scales is three numbers: `row` and `block`, the steps from row to row and from block to block; or
// `blocked`, tiles of 128 x 4 bytes, with `row` from one row of tiles to the next.
#pragma once

#include <cstdint>

#include "common/dependent_launch.cuh"
#include "common/global_memory.cuh"
#include "common/variant.cuh"
#include "dequantize/output.cuh"

namespace zoo {

struct ScaleSteps {
    int64_t row, block;
    bool blocked;

    __device__ __forceinline__ int64_t offset(int32_t r, int32_t b) const {
        if (blocked) return r / 128 * row + b / 4 * int64_t(512) + r % 32 * 16 + r % 128 / 32 * 4 + b % 4;
        return r * row + b * block;
    }

    // From one block to the one BLOCKS further; among tiles only by whole ones.
    template <int BLOCKS>
    __device__ __forceinline__ int64_t along() const {
        return blocked && BLOCKS % 4 == 0 ? BLOCKS / 4 * 512 : BLOCKS * block;
    }
};

// 2, 4 or 8 bytes in one load, in the low bytes of the result.
template <int BYTES>
__device__ __forceinline__ uint2 load_narrow(const uint8_t* address) {
    uint2 v = {0, 0};
    if constexpr (BYTES == 2) asm volatile("ld.global.u16 %0, [%1];" : "=r"(v.x) : "l"(address));
    if constexpr (BYTES == 4) asm volatile("ld.global.u32 %0, [%1];" : "=r"(v.x) : "l"(address));
    if constexpr (BYTES == 8) asm volatile("ld.global.v2.u32 {%0, %1}, [%2];" : "=r"(v.x), "=r"(v.y) : "l"(address));
    static_assert(BYTES == 2 || BYTES == 4 || BYTES == 8);
    return v;
}

// There are less than 2^31 shares, and C fits 31 bits, also rounded up to whole ones. q_stride in bytes, out_stride in
// elements. SQUARE: rows that share a plain scale; in the blocked layout each row has its own copy.
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
    const int32_t left = C - column;  // zero or negative where there is nothing
    q += row * q_stride + column / PER_BYTE;
    out += (row * out_stride + column) * To::BYTES;
    scales += steps.offset(SQUARE > 1 && !steps.blocked ? row / SQUARE : row, column / Format::BLOCK);
    const int64_t scale_step = steps.along<PIECE / Format::BLOCK>();
    // Rows need not start at whole loads and stores; then each element goes by itself.
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
    // The end of a row that is no whole store.
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
