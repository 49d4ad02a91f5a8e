// quantize.mxfp8.rows: x (M, K) -> q (M, K), one fp8 an element, and a ue8m0 scale for every 32 elements of a row.
//
// The format is in mxfp8.cuh, the direction (who reads what, in which order) in rows.cuh, the layouts of the scales in
// scale_layout.cuh. Memory-bound: of a block of bf16, 64 + 32 + 1 bytes move and about 330 lane-instructions run, where
// a multiprocessor has 650 in the time its share of the memory takes. What counts is that every load of a warp is in
// flight before it uses the first, that accesses are 16 bytes, and that each byte moves once.

#include "common/variant.cuh"
#include "quantize/mxfp8.cuh"
#include "quantize/rows.cuh"

// scales_stride, in bytes: plain, from row to row; blocked, from one row of tiles to the next.
//
// CTAS matters though it never binds: without it the compiler keeps to 32 registers by loading half of the data after
// it has used the other half, which costs 7 % of the time.
extern "C" __global__ void __launch_bounds__(Variant::THREADS, Variant::CTAS)
ZOO_KERNEL(const uint8_t* x, uint8_t* q, uint8_t* scales, int64_t M, int64_t K, int64_t x_stride, int64_t q_stride,
           int64_t scales_stride) {
    using Format = zoo::Mxfp8<Variant::q, Variant::rounding>;
    // As many loads as lanes share a block (4, or 8 for f32): then each lane stores one scale byte.
    constexpr int LOADS = Format::BLOCK / zoo::Input<Variant::x>::VALUES;
    zoo::quantize_rows<Variant::x, Variant::layout, Variant::THREADS, LOADS>(Format(), x, q, scales, M, K, x_stride,
                                                                             q_stride, scales_stride);
}
