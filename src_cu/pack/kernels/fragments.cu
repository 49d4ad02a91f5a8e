// pack.nvfp4.fragments: 4-bit weights of experts (G, N, K / 2) to fragment order, the order of a warpdata's registers.
//
//     pack/fragments.cuh         which rows and columns does a lane take, and where in a chunk do they go?
//     pack/fragment_words.cuh    in which order are the bits of codes?
//     pack/fragment_scales.cuh   which bytes are the scales for bf16?
//
// The sign of a scale moves into its codes. The kernel is memory-bound. MXFP4 has relative scales: fragments_relative.cu.

#include "common/dependent_launch.cuh"
#include "common/global_memory.cuh"
#include "common/variant.cuh"
#include "pack/fragment_scales.cuh"
#include "pack/fragment_words.cuh"
#include "pack/fragments.cuh"

namespace zoo {

using Scale = Variant::scales;
using Packed = Fragments<Scale>;
static_assert(Variant::THREADS / 32 == UNITS_OF_TILE * WARPS_ACROSS && Packed::BLOCK == 16);

// The codes and scales of a lane's two rows in all chunks of the warp.
struct LaneData {
    uint2 codes[CHUNKS_OF_WARP][2];
    uint32_t scales[CHUNKS_OF_WARP][2];

    // `codes_at` and `scale_at`: the lane's first 16 columns of a row and their scale. `left`: columns of the row from there on.
    __device__ __forceinline__ void load(int half, bool exists, const uint8_t* codes_at, const uint8_t* scale_at, int left) {
#pragma unroll
        for (int c = 0; c < CHUNKS_OF_WARP; c++) {
            codes[c][half] = make_uint2(0, 0);
            scales[c][half] = 0;
            if (!exists || left <= c * COLUMNS_OF_CHUNK) continue;
            codes[c][half] = load_8_bytes(codes_at + c * (COLUMNS_OF_CHUNK / 2));
            scales[c][half] = load_byte(scale_at + c * (COLUMNS_OF_CHUNK / Packed::BLOCK));
        }
    }
};

__device__ __forceinline__ void store(const LaneData& data, int first_chunk, int chunks, uint8_t* target, int unit_of_tile,
                                      int lane, Tokens tokens) {
#pragma unroll
    for (int c = 0; c < CHUNKS_OF_WARP; c++) {
        if (first_chunk + c >= chunks) break;
        uint32_t words[4] = {data.codes[c][0].x, data.codes[c][1].x, data.codes[c][0].y, data.codes[c][1].y};
        uint32_t scales = data.scales[c][0] | data.scales[c][1] << 8;
        const bool of_bf16 = tokens == Tokens::bf16;
        if (of_bf16 && __all_sync(0xFFFFFFFF, ScaleBytes<Scale>::fp8_bytes_are_normal(scales))) {
            scales += ScaleBytes<Scale>::OFFSET;
        } else {
            scales = 0;
#pragma unroll
            for (int half = 0; half < 2; half++) {
                const uint32_t flipped = data.scales[c][half] & 0x80 ? 0x88888888 : 0, scale = data.scales[c][half] & 0x7F;
                const uint32_t mask = of_bf16 ? code_mask(scale) : 0xFFFFFFFF;
                words[half] = (words[half] ^ flipped) & mask;
                words[2 + half] = (words[2 + half] ^ flipped) & mask;
                scales |= (of_bf16 ? ScaleBytes<Scale>::to_bf16(scale) : scale) << 8 * half;
            }
        }
        if (of_bf16) {
            exchange_to_bf16(words, lane % 4);
        } else {
#pragma unroll
            for (int i = 0; i < 4; i++) words[i] = to_fp8_word(words[i]);
        }
        uint8_t* chunk = target + int64_t(first_chunk + c) * Packed::CHUNK_BYTES;
        store_16_bytes(chunk + 512 * unit_of_tile + 16 * lane, words);
        *reinterpret_cast<uint16_t*>(chunk + Packed::scale_byte(unit_of_tile, lane)) = static_cast<uint16_t>(scales);
    }
}

}  // namespace zoo

// q_row, q_matrix, scales_row and scales_matrix count bytes.
extern "C" __global__ void __launch_bounds__(Variant::THREADS, Variant::CTAS) ZOO_KERNEL(ZOO_PARAMETERS) {
    using namespace zoo;
    let_next_kernel_launch();
    const int lane = threadIdx.x % 32, g = lane / 4;
    const int64_t expert = blockIdx.y;
    const WarpPosition own(K);
    q += expert * q_matrix;
    scales += expert * scales_matrix;
    b += own.tile_of_experts(expert, N) * own.chunks * Packed::CHUNK_BYTES;
    wait_for_previous_kernel();

    LaneData data;
    const LaneRows rows(gates, own.unit, g, N);
    const int piece = own.first_chunk * (COLUMNS_OF_CHUNK / 16) + lane % 4;  // index of 16 columns
#pragma unroll
    for (int half = 0; half < 2; half++)
        data.load(half, rows.exists(half), rows.in(q, q_row, half) + int64_t(piece) * 8,
                  rows.in(scales, scales_row, half) + piece, K - piece * 16);
    store(data, own.first_chunk, own.chunks, b, own.unit_of_tile, lane, tokens);
}
