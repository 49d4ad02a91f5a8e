// pack.nvfp4.fragments, pack.mxfp4.fragments: 4-bit weights of experts (G, N, K / 2) -> the order in which a warpgroup takes them.
//
// fragments.cuh has the units; a CTA packs 2048 columns of one. Memory-bound.
//
//     nvfp4   a scale without its sign goes where it belongs, the sign into its codes
//     mxfp4   scales become relative to the largest of their row whose block has a code. It is found while the codes are on their way:
//             of the row's scales, which are a sixteenth of the codes, the largest, and of the codes one block that has it. Where
//             all of that are 0, all codes of the row are read.

#include "common/dependent_launch.cuh"
#include "common/global_memory.cuh"
#include "common/variant.cuh"
#include "pack/fragments.cuh"

namespace zoo {

using Scale = Variant::scales;
using Packed = Fragments<Scale>;
constexpr bool RELATIVE = Packed::BLOCK == 32;
constexpr int WARPS = Variant::THREADS / 32;
constexpr int LARGEST_EXPONENT = 6, EXPONENT_BIAS = 120, NO_NUMBER = 255, NO_LARGEST = 127;
static_assert(WARPS * GROUP == CHUNKS_OF_PART);

__device__ __forceinline__ bool any_code(uint2 codes) { return ((codes.x | codes.y) & 0x77777777) != 0; }

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

// The largest of 16 lanes, in all of them.
__device__ __forceinline__ int largest_of_half_warp(int value) {
#pragma unroll
    for (int distance = 1; distance < 16; distance *= 2) value = max(value, __shfl_xor_sync(0xFFFFFFFF, value, distance));
    return value;
}

// Of mxfp4: what the scales of a row are relative to. Half a warp for each row; without a row, q is null.
__device__ __forceinline__ int largest_scale(const uint8_t* q, const uint8_t* scales, int blocks, int lane) {
    constexpr int NONE = -1;
    int largest = NONE, place = 0;
    if (q == nullptr) blocks = 0;
#pragma unroll 4
    for (int block = lane % 16; block < blocks; block += 16) {
        const int scale = load_byte(scales + block);
        if (scale != NO_NUMBER && scale > largest) largest = scale, place = block;
    }
    auto has_code = [&](int block) {
        return any_code(load_8_bytes(q + 16 * block)) || any_code(load_8_bytes(q + 16 * block + 8));
    };
    const int of_row = largest_of_half_warp(largest);
    const bool found = largest == of_row && largest != NONE && has_code(place);
    const bool known = (__ballot_sync(0xFFFFFFFF, found) >> (lane & 16) & 0xFFFF) != 0;
    int of_codes = NONE;
    if (!known)
#pragma unroll 1
        for (int block = lane % 16; block < blocks; block += 16) {
            const int scale = load_byte(scales + block);
            if (scale != NO_NUMBER && scale > of_codes && has_code(block)) of_codes = scale;
        }
    of_codes = largest_of_half_warp(of_codes);
    return known ? of_row : of_codes == NONE ? NO_LARGEST : of_codes;
}

// How many of eight codes times 2^-below are no multiples of e4m3's smallest step: from 9 on 0.5 and 1.5, from 10 on 1 and 3, too, from 11 on
// all but 4, from 12 on all but 0.
__device__ __forceinline__ int rounded_codes(uint32_t eight, int below) {
    constexpr uint32_t EACH = 0x11111111;
    const uint32_t low = eight, middle = eight >> 1, high = eight >> 2, any = low | middle | high;
    const uint32_t found = below <= 8    ? 0
                           : below == 9  ? low & ~high
                           : below == 10 ? any & ~high | low & ~middle
                           : below == 11 ? any & ~(high & middle & ~low)
                                         : any;
    return __popc(found & EACH);
}

// Of mxfp4: the byte that is stored for a scale, and how many of the lane's 16 codes of its block fp8 will round.
__device__ __forceinline__ uint32_t relative_scale(uint32_t scale, int largest, bool block_has_code, uint2 codes, int& rounded) {
    if (scale == NO_NUMBER) return 127;
    const int exponent = int(scale) - largest + LARGEST_EXPONENT;
    if (!block_has_code) return 0;
    rounded += rounded_codes(codes.x, -exponent) + rounded_codes(codes.y, -exponent);
    return max(exponent + EXPONENT_BIAS, 0);
}

__device__ __forceinline__ void store(const Group& group, const int (&largest)[2], int first_chunk, int chunks, uint8_t* target,
                                      int place, int lane, int& rounded) {
#pragma unroll
    for (int c = 0; c < GROUP; c++) {
        if (first_chunk + c >= chunks) break;
        uint32_t words[4], scales[2];
#pragma unroll
        for (int half = 0; half < 2; half++) {
            uint2 codes = group.codes[c][half];
            if constexpr (RELATIVE) {
                const unsigned pair = __ballot_sync(0xFFFFFFFF, any_code(codes)) >> (lane & ~1) & 3;
                scales[half] = relative_scale(group.scales[c][half], largest[half], pair != 0, codes, rounded);
            } else {
                const uint32_t turned = group.scales[c][half] & 0x80 ? 0x88888888 : 0;
                codes.x ^= turned, codes.y ^= turned;
                scales[half] = group.scales[c][half] & 0x7F;
            }
            words[half] = braided(codes.x);
            words[2 + half] = braided(codes.y);
        }
        uint8_t* chunk = target + int64_t(first_chunk + c) * Packed::CHUNK_BYTES;
        store_16_bytes(chunk + 512 * place + 16 * lane, words);
        if (!RELATIVE || lane % 2 == 0)
            *reinterpret_cast<uint16_t*>(chunk + Packed::scale_byte(place, lane)) =
                static_cast<uint16_t>(scales[0] | scales[1] << 8);
    }
}

}  // namespace zoo

// q_row, q_matrix, scales_row and scales_matrix in bytes. row_scale and rounded: of mxfp4; the latter may be null.
extern "C" __global__ void __launch_bounds__(Variant::THREADS, Variant::CTAS)
    ZOO_KERNEL(const uint8_t* q, const uint8_t* scales, uint8_t* b, uint8_t* row_scale, int* rounded, int32_t N, int32_t K,
               int64_t q_row, int64_t q_matrix, int64_t scales_row, int64_t scales_matrix, int32_t launched_gates) {
    using namespace zoo;
    let_next_kernel_launch();
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4;
    const int unit = blockIdx.x, units = gridDim.x, place = unit % UNITS_OF_TILE;
    const int64_t expert = blockIdx.y, row = (expert * units + unit) * ROWS_OF_UNIT;
    const int chunks = (K + COLUMNS_OF_CHUNK - 1) / COLUMNS_OF_CHUNK, first_chunk = blockIdx.z * CHUNKS_OF_PART + warp * GROUP;
    const Gates gates = gates_of(launched_gates);
    q += expert * q_matrix;
    scales += expert * scales_matrix;
    b += (expert * (units / UNITS_OF_TILE) + unit / UNITS_OF_TILE) * chunks * Packed::CHUNK_BYTES;
    wait_for_previous_kernel();

    Group group;
    group.load(RowPair(q, q_row, gates, unit, g, N), RowPair(scales, scales_row, gates, unit, g, N), first_chunk, lane % 4, K);
    int largest[2] = {}, count = 0;
    if constexpr (RELATIVE) {
        __shared__ int of_rows[ROWS_OF_UNIT];
        static_assert(WARPS * 2 == ROWS_OF_UNIT, "half a warp finds the largest scale of a row");
        const int own = threadIdx.x / 16;
        const bool inside = unit * ROWS_OF_UNIT + own < N;
        const int64_t source = source_row(gates, unit, own / 8, own % 8, N);
        const int found = largest_scale(inside ? q + source * q_row : nullptr, scales + source * scales_row, K / 32, lane);
        if (lane % 16 == 0) {
            of_rows[own] = found;
            if (blockIdx.z == 0) row_scale[row + own] = found;
        }
        __syncthreads();
        largest[0] = of_rows[g], largest[1] = of_rows[8 + g];
    }
    store(group, largest, first_chunk, chunks, b, place, lane, count);
    if constexpr (RELATIVE) {
        __shared__ int of_warps[WARPS];
        if (rounded == nullptr) return;
#pragma unroll
        for (int distance = 1; distance < 32; distance *= 2) count += __shfl_xor_sync(0xFFFFFFFF, count, distance);
        if (lane == 0) of_warps[warp] = count;
        __syncthreads();
        if (threadIdx.x != 0) return;
#pragma unroll
        for (int i = 1; i < WARPS; i++) count += of_warps[i];
        rounded[(expert * units + unit) * gridDim.z + blockIdx.z] = count;
    }
}
