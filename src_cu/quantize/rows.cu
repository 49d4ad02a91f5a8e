// quantize.<format>.rows: x (M, K) -> q, and a scale for every block of a row.
//
// The format follows from the dtypes (common/formats.cuh), the direction (who reads what, in which order) is in rows.cuh, for
// FP4 of two-byte floats in whole_blocks.cuh, the layouts of the scales in scale_layout.cuh. Memory-bound: of 32 bf16, 64
// bytes are read and 17 to 33 written, and 300 to 520 lane-instructions run, where a multiprocessor has 550 to 650 in the
// time its share of the memory takes. What counts is that every load of a warp is in flight before it uses the first,
// that accesses are 16 bytes, and that each byte moves once.

#include "common/formats.cuh"
#include "common/variant.cuh"
#include "quantize/rows.cuh"
#include "quantize/whole_blocks.cuh"

using Of = zoo::FormatOf<Variant::q, Variant::scales>;

// x_stride in elements; q_stride in bytes; scales_stride in scales: plain, from row to row; mn_major, from one block of K to
// the next; blocked, from one row of tiles to the next.
//
// CTAS matters though it never binds: without it the compiler keeps to 32 registers by loading half of the data after
// it has used the other half, which costs 7 % of the time.
extern "C" __global__ void __launch_bounds__(Variant::THREADS, Variant::CTAS)
    ZOO_KERNEL(const uint8_t* x, Of::Argument argument, uint8_t* q, uint8_t* scales, int64_t M, int64_t K, int64_t x_stride,
               int64_t q_stride, int64_t scales_stride, int32_t plain) {
    using namespace zoo;
    using Scale = Of::Type::Scale;
    constexpr int VALUES = Input<Variant::x>::VALUES, BLOCK = Of::Type::BLOCK;
    const auto format = Of::make(argument, 0);
    const Layout layout = layout_of<Scale>(Variant::PLAIN < 2 ? Variant::PLAIN : plain);
    if constexpr (VALUES == 8 && Of::Type::ELEMENTS_PER_BYTE == 2) {
        quantize_whole_blocks<Variant::THREADS>(layout, format, Matrix<Variant::x>{x, x_stride}, q, scales, M, K, q_stride,
                                                scales_stride);
    } else {
        constexpr int LOADS = 32 / VALUES;  // of mxfp8, as many as lanes share a block: then each lane stores one scale
        constexpr int PIECE = 32 * VALUES;
        auto quantize = [&](auto layout_of_scales) {
            quantize_rows<Variant::x, Variant::THREADS, LOADS>(layout_of_scales, format, x, q, scales, M, K, x_stride, q_stride,
                                                               scales_stride);
        };
        if constexpr (Variant::PLAIN < 2)
            quantize(ScaleLayout<layout_of<Scale>(Variant::PLAIN), BLOCK, LOADS, PIECE, Scale>{});
        else
            quantize(MaskedScaleLayout<BLOCK, LOADS, PIECE, Scale>(layout));
    }
}
