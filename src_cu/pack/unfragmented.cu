// unpack.nvfp4.fragments, unpack.mxfp4.fragments: packed weights -> rows of codes and scales as checkpoints have them. The inverse of
// fragments.cu, whose units and lanes these are.

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
static_assert(Variant::THREADS / 32 == UNITS_OF_TILE * GROUPS_OF_CTA);

// By a whole warp. Two bytes of bf16 as they would be for FP8.
template <class Scales = ScalesOfBf16<Variant::scales>>
__device__ __forceinline__ uint32_t scales_of_fp8(uint32_t bytes) {
    if constexpr (requires { Scales::FURTHER; })
        if (__all_sync(0xFFFFFFFF, Scales::are_normal_of_bf16(bytes))) return bytes - Scales::FURTHER;
    return Scales::back(bytes & 0xFF) | Scales::back(bytes >> 8) << 8;
}

// Four lanes have a byte for each of four chunks, those of four pieces of 16 columns; lane c gets the scales of chunk c in their order.
__device__ __forceinline__ uint32_t scales_of_one_chunk(uint32_t bytes, int lane) {
    uint32_t found = 0;
#pragma unroll
    for (int i = 0; i < SCALES_OF_CHUNK; i++) {
        const uint32_t others = __shfl_sync(0xFFFFFFFF, bytes, (lane & ~3) + i * (4 / SCALES_OF_CHUNK));
        found |= (others >> 8 * (lane % 4) & 0xFF) << 8 * i;
    }
    return found;
}

}  // namespace zoo

// Strides as in fragments.cu; row_scale: of mxfp4.
extern "C" __global__ void __launch_bounds__(Variant::THREADS, Variant::CTAS)
    ZOO_KERNEL(const uint8_t* b, const uint8_t* row_scale, uint8_t* q, uint8_t* scales, int32_t N, int32_t K, int64_t q_row,
               int64_t q_matrix, int64_t scales_row, int64_t scales_matrix, int32_t launched_gates, int32_t launched_tokens) {
    using namespace zoo;
    let_next_kernel_launch();
    const int lane = threadIdx.x % 32, g = lane / 4, part = lane % 4;
    const int64_t expert = blockIdx.y;
    const GroupOfWarp own(K);
    q += expert * q_matrix;
    scales += expert * scales_matrix;
    const Gates gates = gates_of(launched_gates);
    b += own.tile_of_all(expert, N) * own.chunks * Packed::CHUNK_BYTES;
    wait_for_previous_kernel();

    uint32_t words[GROUP][4] = {};  // h + 2 s: of row h, eight columns s
    uint32_t stored[GROUP] = {};    // two scales each
#pragma unroll
    for (int c = 0; c < GROUP; c++) {
        const uint8_t* chunk = b + int64_t(own.first_chunk + c) * Packed::CHUNK_BYTES;
        if (own.first_chunk + c >= own.chunks) continue;
        const uint4 packed = load_16_bytes(chunk + 512 * own.place + 16 * lane);
        words[c][0] = packed.x, words[c][1] = packed.y, words[c][2] = packed.z, words[c][3] = packed.w;
        stored[c] = load_2_bytes(chunk + Packed::scale_byte(own.place, lane));
    }
    const bool of_bf16 = static_cast<Tokens>(launched_tokens) == Tokens::bf16;
#pragma unroll
    for (int c = 0; c < GROUP; c++) {
        if (of_bf16) {
            stored[c] = scales_of_fp8(stored[c]);
            return_codes(words[c], part);
        } else {
#pragma unroll
            for (int i = 0; i < 4; i++) words[c][i] = unbraided(words[c][i]);
        }
    }
    const RowPair rows(gates, own.unit, g, N);
    const int piece = own.first_chunk * (COLUMNS_OF_CHUNK / 16) + part;  // of 16 columns
    const int first_scale = (own.first_chunk + part) * SCALES_OF_CHUNK,
              left = min(K / Packed::BLOCK - first_scale, SCALES_OF_CHUNK);
#pragma unroll
    for (int half = 0; half < 2; half++) {
        int shift = 0;  // from a stored exponent to a scale
        if constexpr (RELATIVE)
            shift = int(load_byte(row_scale + (own.tile_of_all(expert, N) * UNITS_OF_TILE + own.place) * ROWS_OF_UNIT + 8 * half +
                                  g)) -
                    126;
        uint8_t* target = rows.in(q, q_row, half) + int64_t(piece) * 8;
        uint32_t bytes = 0;
#pragma unroll
        for (int c = 0; c < GROUP; c++) {
            const uint32_t codes[2] = {words[c][half], words[c][2 + half]};
            if (rows.exists(half) && K - piece * 16 > c * COLUMNS_OF_CHUNK)
                store_8_bytes(target + c * (COLUMNS_OF_CHUNK / 2), codes);
            int scale = stored[c] >> 8 * half & 0xFF;
            if (RELATIVE) scale = scale == 0 ? 0 : scale == 127 ? 255 : min(max(scale + shift, 0), 254);
            bytes |= uint32_t(scale) << 8 * c;
        }
        const uint32_t of_chunk = scales_of_one_chunk(bytes, lane);
        if (!rows.exists(half)) continue;
        uint8_t* place_of_scales = rows.in(scales, scales_row, half) + first_scale;
        if (left == SCALES_OF_CHUNK && reinterpret_cast<uintptr_t>(place_of_scales) % SCALES_OF_CHUNK == 0) {
            if constexpr (SCALES_OF_CHUNK == 4) *reinterpret_cast<uint32_t*>(place_of_scales) = of_chunk;
            if constexpr (SCALES_OF_CHUNK == 2) *reinterpret_cast<uint16_t*>(place_of_scales) = static_cast<uint16_t>(of_chunk);
        } else {
#pragma unroll
            for (int i = 0; i < SCALES_OF_CHUNK; i++)
                if (i < left) place_of_scales[i] = of_chunk >> 8 * i & 0xFF;
        }
    }
}
