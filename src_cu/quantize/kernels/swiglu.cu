// quantize.<format>.rows.swiglu: x (M, 2 K) -> q (M, K) of silu(gate) * up, and a scale for every block of a row. Made of:
//
//   common/formats.cuh             which format the dtypes of elements and scales choose
//   rows/swiglu.cuh                where gates and ups come from, silu(gate) * up
//   rows/whole_blocks.cuh          how a lane quantises its segment
//   scales/scale_layout.cuh        the layouts of scales, and which pieces a warp reads
//
// Bound by memory and by instructions alike. An element of bf16 is 4 bytes read, 0.6 to 1 byte written and 30 to 40
// lane-instructions; an SM has time for 34.

#include "common/formats.cuh"
#include "common/variant.cuh"
#include "quantize/rows/swiglu.cuh"
#include "quantize/rows/whole_blocks.cuh"

using Traits = zoo::FormatOf<Variant::q, Variant::scales>;

// Strides as in kernels/rows.cu.
extern "C" __global__ void __launch_bounds__(Variant::THREADS, Variant::CTAS) ZOO_KERNEL(ZOO_PARAMETERS) {
    const zoo::Layout layout = zoo::layout_of<Traits::Type::Scale>(Variant::PLAIN < 2 ? Variant::PLAIN : plain);
    zoo::quantize_whole_blocks<Variant::THREADS>(layout, Traits::make(rule, 0),
                                                 zoo::Swiglu<Variant::x>(x, x_stride, K, interleaved), q, scales, M, K, q_stride,
                                                 scales_stride);
}
