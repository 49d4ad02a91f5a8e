// quantize.<format>.rows: x (M, K) -> q, and a scale for every block of a row. Made of:
//
//   common/formats.cuh             which format the dtypes of elements and scales choose
//   rows/matrix.cuh                where a warp's cells come from
//   rows/whole_blocks.cuh          FP4 of 2-byte floats: a lane quantises whole blocks
//   rows/split_blocks.cuh          otherwise: neighbouring lanes share a block
//   scales/scale_layout.cuh        the layouts of scales, and which pieces a warp reads
//
// Memory-bound. 32 bf16 are 64 bytes read, 17 to 33 bytes written and 300 to 520 lane-instructions; an SM has time for 550
// to 650. Speed needs all loads of a warp in flight before the first is used, and accesses of 16 bytes.

#include <type_traits>

#include "common/formats.cuh"
#include "common/variant.cuh"
#include "quantize/rows/matrix.cuh"
#include "quantize/rows/split_blocks.cuh"
#include "quantize/rows/whole_blocks.cuh"

// Rules that few callers choose have cubins of their own, so that the usual rules keep their registers.
using Traits = std::conditional_t<Variant::OTHER_RULES, zoo::OtherFormatOf<Variant::q, Variant::scales>,
                                  zoo::FormatOf<Variant::q, Variant::scales>>;

// x_stride in elements, q_stride in bytes, scales_stride in scales. Plain scales: from row to row. mn_major: from one block
// of K to the next. Blocked: from one row of tiles to the next.
//
// CTAS matters although registers never limit the CTAs of an SM. Without it the compiler uses 32 registers, and loads the
// second half of the data after it has used the first half. That is 7 % slower.
extern "C" __global__ void __launch_bounds__(Variant::THREADS, Variant::CTAS) ZOO_KERNEL(ZOO_PARAMETERS) {
    using namespace zoo;
    using Scale = Traits::Type::Scale;
    constexpr int VALUES = Input<Variant::x>::VALUES, BLOCK = Traits::Type::BLOCK;
    const auto format = Traits::make(rule, 0);
    const Layout layout = layout_of<Scale>(Variant::PLAIN < 2 ? Variant::PLAIN : plain);
    if constexpr (VALUES == 8 && Traits::Type::ELEMENTS_PER_BYTE == 2) {
        quantize_whole_blocks<Variant::THREADS>(layout, format, Matrix<Variant::x>{x, x_stride}, q, scales, M, K, q_stride,
                                                scales_stride);
    } else {
        constexpr int LOADS = 32 / VALUES;  // with MXFP8 the number of lanes that share a block, so each lane stores one scale
        constexpr int PIECE = 32 * VALUES;
        auto quantize = [&](auto layout_of_scales) {
            quantize_split_blocks<Variant::x, Variant::THREADS, LOADS>(layout_of_scales, format, x, q, scales, M, K, x_stride,
                                                                       q_stride, scales_stride);
        };
        if constexpr (Variant::PLAIN < 2)
            quantize(ScaleLayout<layout_of<Scale>(Variant::PLAIN), BLOCK, LOADS, PIECE, Scale>{});
        else
            quantize(MaskedScaleLayout<BLOCK, LOADS, PIECE, Scale>(layout));
    }
}
