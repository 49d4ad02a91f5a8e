// pack.nvfp4.fragments: 4-bit weights of experts (G, N, K / 2) -> the order in which a warpgroup takes them.
//
// fragments.cuh has the units. A scale without its sign goes where it belongs, the sign into its codes.
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
static_assert(Variant::THREADS / 32 == UNITS_OF_TILE * GROUPS_OF_CTA && Packed::BLOCK == 16);

// A lane's codes and scales of a group of chunks, of each of its two rows.
struct Group {
    uint2 codes[GROUP][2];
    uint32_t scales[GROUP][2];

    // Of a row the first 16 columns of the lane lie at `codes_at` and their scale at `scale_at`; `left`: columns from there on.
    __device__ __forceinline__ void load(int half, bool exists, const uint8_t* codes_at, const uint8_t* scale_at, int left) {
#pragma unroll
        for (int c = 0; c < GROUP; c++) {
            codes[c][half] = make_uint2(0, 0);
            scales[c][half] = 0;
            if (!exists || left <= c * COLUMNS_OF_CHUNK) continue;
            codes[c][half] = load_8_bytes(codes_at + c * (COLUMNS_OF_CHUNK / 2));
            scales[c][half] = load_byte(scale_at + c * (COLUMNS_OF_CHUNK / Packed::BLOCK));
        }
    }
};

__device__ __forceinline__ void store(const Group& group, int first_chunk, int chunks, uint8_t* target, int place, int lane,
                                      Tokens tokens) {
#pragma unroll
    for (int c = 0; c < GROUP; c++) {
        if (first_chunk + c >= chunks) break;
        uint32_t words[4] = {group.codes[c][0].x, group.codes[c][1].x, group.codes[c][0].y, group.codes[c][1].y};
        uint32_t scales = group.scales[c][0] | group.scales[c][1] << 8;
        const bool of_bf16 = tokens == Tokens::bf16;
        if (of_bf16 && __all_sync(0xFFFFFFFF, ScalesOfBf16<Scale>::are_normal(scales))) {
            scales += ScalesOfBf16<Scale>::FURTHER;
        } else {
            scales = 0;
#pragma unroll
            for (int half = 0; half < 2; half++) {
                const uint32_t turned = group.scales[c][half] & 0x80 ? 0x88888888 : 0, scale = group.scales[c][half] & 0x7F;
                const uint32_t kept = of_bf16 ? kept_of_codes(scale) : 0xFFFFFFFF;
                words[half] = (words[half] ^ turned) & kept;
                words[2 + half] = (words[2 + half] ^ turned) & kept;
                scales |= (of_bf16 ? ScalesOfBf16<Scale>::from(scale) : scale) << 8 * half;
            }
        }
        if (of_bf16) {
            exchange_codes(words, lane % 4);
        } else {
#pragma unroll
            for (int i = 0; i < 4; i++) words[i] = braided(words[i]);
        }
        uint8_t* chunk = target + int64_t(first_chunk + c) * Packed::CHUNK_BYTES;
        store_16_bytes(chunk + 512 * place + 16 * lane, words);
        *reinterpret_cast<uint16_t*>(chunk + Packed::scale_byte(place, lane)) = static_cast<uint16_t>(scales);
    }
}

}  // namespace zoo

// q_row, q_matrix, scales_row and scales_matrix in bytes.
extern "C" __global__ void __launch_bounds__(Variant::THREADS, Variant::CTAS)
    ZOO_KERNEL(const uint8_t* q, const uint8_t* scales, uint8_t* b, int32_t N, int32_t K, int64_t q_row, int64_t q_matrix,
               int64_t scales_row, int64_t scales_matrix, int32_t launched_gates, int32_t launched_tokens) {
    using namespace zoo;
    let_next_kernel_launch();
    const int lane = threadIdx.x % 32, g = lane / 4;
    const int64_t expert = blockIdx.y;
    const GroupOfWarp own(K);
    const Gates gates = gates_of(launched_gates);
    q += expert * q_matrix;
    scales += expert * scales_matrix;
    b += own.tile_of_all(expert, N) * own.chunks * Packed::CHUNK_BYTES;
    wait_for_previous_kernel();

    Group group;
    const RowPair rows(gates, own.unit, g, N);
    const int piece = own.first_chunk * (COLUMNS_OF_CHUNK / 16) + lane % 4;  // of 16 columns
#pragma unroll
    for (int half = 0; half < 2; half++)
        group.load(half, rows.exists(half), rows.in(q, q_row, half) + int64_t(piece) * 8,
                   rows.in(scales, scales_row, half) + piece, K - piece * 16);
    store(group, own.first_chunk, own.chunks, b, own.place, lane, static_cast<Tokens>(launched_tokens));
}
