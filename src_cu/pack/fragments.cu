// pack.nvfp4.fragments: 4-bit weights of experts (G, N, K / 2) -> the order in which a warpgroup takes them.
//
// fragments.cuh has the units; a CTA packs 2048 columns of one. A scale without its sign goes where it belongs, the sign into its codes.
// Memory-bound. (Scales of mxfp4 become relative to others: fragments_relative.cu.)

#include "common/dependent_launch.cuh"
#include "common/global_memory.cuh"
#include "common/variant.cuh"
#include "pack/fragment_scales.cuh"
#include "pack/fragment_words.cuh"
#include "pack/fragments.cuh"

namespace zoo {

using Scale = Variant::scales;
using Packed = Fragments<Scale>;
constexpr int WARPS = Variant::THREADS / 32;
static_assert(WARPS * GROUP == CHUNKS_OF_PART);

// A lane's codes and scales of a group of chunks, of each of its two rows.
struct Group {
    uint2 codes[GROUP][2];
    uint32_t scales[GROUP][2];

    __device__ __forceinline__ void load(const RowPair& q, const RowPair& scale, int first_chunk, int part, int K) {
#pragma unroll
        for (int c = 0; c < GROUP; c++) {
            const int column = (first_chunk + c) * COLUMNS_OF_CHUNK + part * 16;
#pragma unroll
            for (int half = 0; half < 2; half++) {
                codes[c][half] = make_uint2(0, 0);
                scales[c][half] = 0;
                if (q.row[half] == nullptr || column >= K) continue;
                codes[c][half] = load_8_bytes(q.row[half] + column / 2);
                scales[c][half] = load_byte(scale.row[half] + column / Packed::BLOCK);
            }
        }
    }
};

__device__ __forceinline__ void store(const Group& group, int first_chunk, int chunks, uint8_t* target, int place, int lane,
                                      Tokens tokens) {
#pragma unroll
    for (int c = 0; c < GROUP; c++) {
        if (first_chunk + c >= chunks) break;
        uint32_t words[4], scales[2];
#pragma unroll
        for (int half = 0; half < 2; half++) {
            const uint2 codes = group.codes[c][half];
            const uint32_t turned = group.scales[c][half] & 0x80 ? 0x88888888 : 0;
            scales[half] = group.scales[c][half] & 0x7F;
            words[half] = codes.x ^ turned;
            words[2 + half] = codes.y ^ turned;
        }
        if (tokens == Tokens::bf16) {
#pragma unroll
            for (int i = 0; i < 4; i++) words[i] &= kept_of_codes(scales[i % 2]);
            exchange_codes(words, lane % 4);
#pragma unroll
            for (int half = 0; half < 2; half++) scales[half] = ScalesOfBf16<Scale>::from(scales[half]);
        } else {
#pragma unroll
            for (int i = 0; i < 4; i++) words[i] = braided(words[i]);
        }
        uint8_t* chunk = target + int64_t(first_chunk + c) * Packed::CHUNK_BYTES;
        store_16_bytes(chunk + 512 * place + 16 * lane, words);
        *reinterpret_cast<uint16_t*>(chunk + Packed::scale_byte(place, lane)) = static_cast<uint16_t>(scales[0] | scales[1] << 8);
    }
}

}  // namespace zoo

// q_row, q_matrix, scales_row and scales_matrix in bytes.
extern "C" __global__ void __launch_bounds__(Variant::THREADS, Variant::CTAS)
    ZOO_KERNEL(const uint8_t* q, const uint8_t* scales, uint8_t* b, int32_t N, int32_t K, int64_t q_row, int64_t q_matrix,
               int64_t scales_row, int64_t scales_matrix, int32_t launched_gates, int32_t launched_tokens) {
    using namespace zoo;
    let_next_kernel_launch();
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4;
    const int unit = blockIdx.x, units = gridDim.x, place = unit % UNITS_OF_TILE;
    const int64_t expert = blockIdx.y;
    const int chunks = (K + COLUMNS_OF_CHUNK - 1) / COLUMNS_OF_CHUNK, first_chunk = blockIdx.z * CHUNKS_OF_PART + warp * GROUP;
    const Gates gates = gates_of(launched_gates);
    q += expert * q_matrix;
    scales += expert * scales_matrix;
    b += (expert * (units / UNITS_OF_TILE) + unit / UNITS_OF_TILE) * chunks * Packed::CHUNK_BYTES;
    wait_for_previous_kernel();

    Group group;
    group.load(RowPair(q, q_row, gates, unit, g, N), RowPair(scales, scales_row, gates, unit, g, N), first_chunk, lane % 4, K);
    store(group, first_chunk, chunks, b, place, lane, static_cast<Tokens>(launched_tokens));
}
