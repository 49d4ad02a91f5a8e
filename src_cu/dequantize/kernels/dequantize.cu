// dequantize.<format>.rows and dequantize.<format>.squares: quantised elements and their scales to numbers.
//
//     common/formats.cuh     what do elements and scales mean?
//     dequantize/output.cuh  how is a number stored as bf16 or f32?
//     dequantize/rows.cuh    which elements does a warp take, and in which order does it load and store?

#include "common/formats.cuh"
#include "dequantize/rows.cuh"

using Decoder = zoo::DecoderOf<Variant::q, Variant::scales>::Type;
using Scale = Decoder::Scale;

// Only NVFP4 has a tensor scale.
template <class Format>
__device__ __forceinline__ Format decoder_of(const float* tensor_scale) {
    if constexpr (requires { Format(tensor_scale); })
        return Format(tensor_scale);
    else
        return Format();
}

// blockIdx.y is the matrix. A step counts elements of its array, or bytes of q. A step named `expert_` leads to the next matrix.
// Only formats with blocked scales have the parameter `blocked`.
extern "C" __global__ void __launch_bounds__(Variant::THREADS, Variant::CTAS) ZOO_KERNEL(ZOO_PARAMETERS) {
    ZOO_ABSENT_PARAMETERS
    const int64_t expert = blockIdx.y;
    zoo::dequantize_rows<Variant::out, Variant::THREADS, Variant::PIECES, Variant::SQUARE>(
        decoder_of<Decoder>(tensor_scale + expert * tensor_scale_step), q + expert * expert_q_step,
        scales + expert * expert_scales_step, out + expert * expert_out_step * zoo::Output<Variant::out>::BYTES, R, C, q_step,
        out_step, zoo::ScaleSteps{scales_row_step, scales_block_step, blocked != 0});
}
