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
static_assert(Variant::THREADS / 32 * GROUP == CHUNKS_OF_PART);

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
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, part = lane % 4;
    const int unit = blockIdx.x, units = gridDim.x, place = unit % UNITS_OF_TILE;
    const int64_t expert = blockIdx.y;
    const int chunks = (K + COLUMNS_OF_CHUNK - 1) / COLUMNS_OF_CHUNK, first_chunk = blockIdx.z * CHUNKS_OF_PART + warp * GROUP;
    const Gates gates = gates_of(launched_gates);
    b += (expert * (units / UNITS_OF_TILE) + unit / UNITS_OF_TILE) * chunks * Packed::CHUNK_BYTES;
    wait_for_previous_kernel();

    uint32_t words[GROUP][4] = {};  // h + 2 s: of row h, eight columns s
    uint32_t stored[GROUP] = {};    // two scales each
#pragma unroll
    for (int c = 0; c < GROUP; c++) {
        const uint8_t* chunk = b + int64_t(first_chunk + c) * Packed::CHUNK_BYTES;
        if (first_chunk + c >= chunks) continue;
        const uint4 own = load_16_bytes(chunk + 512 * place + 16 * lane);
        words[c][0] = own.x, words[c][1] = own.y, words[c][2] = own.z, words[c][3] = own.w;
        stored[c] = load_2_bytes(chunk + Packed::scale_byte(place, lane));
    }
    const bool of_bf16 = static_cast<Tokens>(launched_tokens) == Tokens::bf16;
#pragma unroll
    for (int c = 0; c < GROUP; c++) {
        if (of_bf16) {
            return_codes(words[c], part);
        } else {
#pragma unroll
            for (int i = 0; i < 4; i++) words[c][i] = unbraided(words[c][i]);
        }
    }
#pragma unroll
    for (int half = 0; half < 2; half++) {
        const bool inside = unit * ROWS_OF_UNIT + 8 * half + g < N;
        const int64_t row = inside ? source_row(gates, unit, half, g, N) : 0;
        int shift = 0;  // from a stored exponent to a scale
        if constexpr (RELATIVE) shift = int(load_byte(row_scale + (expert * units + unit) * ROWS_OF_UNIT + 8 * half + g)) - 126;
        uint8_t* target = q + expert * q_matrix + row * q_row;
        uint32_t bytes = 0;
#pragma unroll
        for (int c = 0; c < GROUP; c++) {
            const int column = (first_chunk + c) * COLUMNS_OF_CHUNK + part * 16;
            const uint32_t codes[2] = {words[c][half], words[c][2 + half]};
            if (inside && column < K) store_8_bytes(target + column / 2, codes);
            int scale = stored[c] >> 8 * half & 0xFF;
            if (of_bf16) scale = ScalesOfBf16<Variant::scales>::back(scale);
            if (RELATIVE) scale = scale == 0 ? 0 : scale == 127 ? 255 : min(max(scale + shift, 0), 254);
            bytes |= uint32_t(scale) << 8 * c;
        }
        const uint32_t own = scales_of_one_chunk(bytes, lane);
        uint8_t* place_of_scales = scales + expert * scales_matrix + row * scales_row + (first_chunk + part) * SCALES_OF_CHUNK;
        const int left = inside ? min((K - (first_chunk + part) * COLUMNS_OF_CHUNK) / Packed::BLOCK, SCALES_OF_CHUNK) : 0;
        if (left == SCALES_OF_CHUNK && reinterpret_cast<uintptr_t>(place_of_scales) % SCALES_OF_CHUNK == 0) {
            if constexpr (SCALES_OF_CHUNK == 4) *reinterpret_cast<uint32_t*>(place_of_scales) = own;
            if constexpr (SCALES_OF_CHUNK == 2) *reinterpret_cast<uint16_t*>(place_of_scales) = static_cast<uint16_t>(own);
        } else {
#pragma unroll
            for (int i = 0; i < SCALES_OF_CHUNK; i++)
                if (i < left) place_of_scales[i] = own >> 8 * i & 0xFF;
        }
    }
}
