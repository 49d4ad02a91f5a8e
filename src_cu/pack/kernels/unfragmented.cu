// unpack.nvfp4.fragments and unpack.mxfp4.fragments: weights in fragment order to rows of codes and scales as in a checkpoint. This is the
// inverse of fragments.cu and fragments_relative.cu, with the units and lanes of fragments.cu.
//
//     pack/fragments.cuh         which rows and columns does a lane take, and where in a chunk do they go?
//     pack/fragment_words.cuh    in which order are the bits of codes?
//     pack/fragment_scales.cuh   which bytes are the scales for bf16?

#include "common/dependent_launch.cuh"
#include "common/global_memory.cuh"
#include "common/variant.cuh"
#include "pack/fragment_scales.cuh"
#include "pack/fragment_words.cuh"
#include "pack/fragments.cuh"

namespace zoo {

using Packed = Fragments<Variant::scales>;
constexpr bool RELATIVE = Packed::BLOCK == 32;
constexpr int SCALES_OF_CHUNK = COLUMNS_OF_CHUNK / Packed::BLOCK;
static_assert(Variant::THREADS / 32 == UNITS_OF_TILE * WARPS_ACROSS);

// Two scale bytes for bf16 to bytes for FP8. Called by a whole warp.
template <class Scales = ScaleBytes<Variant::scales>>
__device__ __forceinline__ uint32_t to_fp8_scales(uint32_t bytes) {
    if constexpr (requires { Scales::OFFSET; })
        if (__all_sync(0xFFFFFFFF, Scales::bf16_bytes_are_normal(bytes))) return bytes - Scales::OFFSET;
    return Scales::to_fp8(bytes & 0xFF) | Scales::to_fp8(bytes >> 8) << 8;
}

// Each of four lanes has a byte for each of four chunks: the scale of its 16 columns. Lane c gets the scales of chunk c in order.
__device__ __forceinline__ uint32_t exchange_scales(uint32_t bytes, int lane) {
    uint32_t found = 0;
#pragma unroll
    for (int i = 0; i < SCALES_OF_CHUNK; i++) {
        const uint32_t others = __shfl_sync(0xFFFFFFFF, bytes, (lane & ~3) + i * (4 / SCALES_OF_CHUNK));
        found |= (others >> 8 * (lane % 4) & 0xFF) << 8 * i;
    }
    return found;
}

}  // namespace zoo

// Strides count bytes. Only MXFP4 has row_scale.
extern "C" __global__ void __launch_bounds__(Variant::THREADS, Variant::CTAS) ZOO_KERNEL(ZOO_PARAMETERS) {
    using namespace zoo;
    let_next_kernel_launch();
    const int lane = threadIdx.x % 32, g = lane / 4, part = lane % 4;
    const int64_t expert = blockIdx.y;
    const WarpPosition own(K);
    q += expert * q_matrix;
    scales += expert * scales_matrix;
    b += own.tile_of_experts(expert, N) * own.chunks * Packed::CHUNK_BYTES;
    wait_for_previous_kernel();

    uint32_t words[CHUNKS_OF_WARP][4] = {};     // word h + 2 s: row h, eight columns s
    uint32_t scale_bytes[CHUNKS_OF_WARP] = {};  // two scales in each
#pragma unroll
    for (int c = 0; c < CHUNKS_OF_WARP; c++) {
        const uint8_t* chunk = b + int64_t(own.first_chunk + c) * Packed::CHUNK_BYTES;
        if (own.first_chunk + c >= own.chunks) continue;
        const uint4 packed = load_16_bytes(chunk + 512 * own.unit_of_tile + 16 * lane);
        words[c][0] = packed.x, words[c][1] = packed.y, words[c][2] = packed.z, words[c][3] = packed.w;
        scale_bytes[c] = load_2_bytes(chunk + Packed::scale_byte(own.unit_of_tile, lane));
    }
    const bool of_bf16 = tokens == Tokens::bf16;
#pragma unroll
    for (int c = 0; c < CHUNKS_OF_WARP; c++) {
        if (of_bf16) {
            scale_bytes[c] = to_fp8_scales(scale_bytes[c]);
            exchange_from_bf16(words[c], part);
        } else {
#pragma unroll
            for (int i = 0; i < 4; i++) words[c][i] = from_fp8_word(words[c][i]);
        }
    }
    const LaneRows rows(gates, own.unit, g, N);
    const int piece = own.first_chunk * (COLUMNS_OF_CHUNK / 16) + part;  // index of 16 columns
    const int first_scale = (own.first_chunk + part) * SCALES_OF_CHUNK,
              left = min(K / Packed::BLOCK - first_scale, SCALES_OF_CHUNK);
#pragma unroll
    for (int half = 0; half < 2; half++) {
        int shift = 0;  // from a relative scale to the scale
        if constexpr (RELATIVE)
            shift = int(load_byte(row_scale + (own.tile_of_experts(expert, N) * UNITS_OF_TILE + own.unit_of_tile) * ROWS_OF_UNIT +
                                  8 * half + g)) -
                    126;
        uint8_t* target = rows.in(q, q_row, half) + int64_t(piece) * 8;
        uint32_t bytes = 0;
#pragma unroll
        for (int c = 0; c < CHUNKS_OF_WARP; c++) {
            const uint32_t codes[2] = {words[c][half], words[c][2 + half]};
            if (rows.exists(half) && K - piece * 16 > c * COLUMNS_OF_CHUNK)
                store_8_bytes(target + c * (COLUMNS_OF_CHUNK / 2), codes);
            int scale = scale_bytes[c] >> 8 * half & 0xFF;
            if (RELATIVE) scale = scale == 0 ? 0 : scale == 127 ? 255 : min(max(scale + shift, 0), 254);
            bytes |= uint32_t(scale) << 8 * c;
        }
        const uint32_t of_chunk = exchange_scales(bytes, lane);
        if (!rows.exists(half)) continue;
        uint8_t* target_scales = rows.in(scales, scales_row, half) + first_scale;
        if (left == SCALES_OF_CHUNK && reinterpret_cast<uintptr_t>(target_scales) % SCALES_OF_CHUNK == 0) {
            if constexpr (SCALES_OF_CHUNK == 4) *reinterpret_cast<uint32_t*>(target_scales) = of_chunk;
            if constexpr (SCALES_OF_CHUNK == 2) *reinterpret_cast<uint16_t*>(target_scales) = static_cast<uint16_t>(of_chunk);
        } else {
#pragma unroll
            for (int i = 0; i < SCALES_OF_CHUNK; i++)
                if (i < left) target_scales[i] = of_chunk >> 8 * i & 0xFF;
        }
    }
}
