// quantize.<format>.rows.swiglu: x (M, 2 K) -> q (M, K) of silu(gate) * up, and a scale for every block of a row.
//
// SwiGLU is in swiglu.cuh, the format follows from the dtypes (common/formats.cuh), the direction is in whole_blocks.cuh. Bound
// by memory and by instructions alike: of an element of bf16, 4 bytes are read and 0.6 to 1 written, and 30 to 40
// lane-instructions run, where a multiprocessor has 34 in the time its share of the memory takes.

#include "common/formats.cuh"
#include "common/variant.cuh"
#include "quantize/swiglu.cuh"
#include "quantize/whole_blocks.cuh"

using Of = zoo::FormatOf<Variant::q, Variant::scales>;

// Strides as in rows.cu.
extern "C" __global__ void __launch_bounds__(Variant::THREADS, Variant::CTAS)
    ZOO_KERNEL(const uint8_t* x, Of::Argument argument, uint8_t* q, uint8_t* scales, int64_t M, int64_t K, int64_t x_stride,
               int64_t q_stride, int64_t scales_stride, int32_t plain, int32_t interleaved) {
    const zoo::Layout layout = zoo::layout_of<Of::Type::Scale>(Variant::PLAIN < 2 ? Variant::PLAIN : plain);
    zoo::quantize_whole_blocks<Variant::THREADS>(layout, Of::make(argument, 0),
                                                 zoo::Swiglu<Variant::x>(x, x_stride, K, interleaved), q, scales, M, K, q_stride,
                                                 scales_stride);
}
