// pack.mxfp4.fragments: 4-bit weights of experts (G, N, K / 2) to fragment order, with scales relative to the largest scale of their row.
//
//     pack/fragments.cuh         which rows and columns does a lane take, and where in a chunk do they go?
//     pack/fragment_words.cuh    in which order are the bits of codes?
//     pack/fragment_scales.cuh   which bytes are the scales for bf16?
//     pack/relative_scale.cuh    what is a relative scale, and which codes does it round?
//
// The largest scale of a row counts blocks with a nonzero code only. A CTA loads the columns of a unit at once and keeps them in registers,
// so a unit of one step is read once. The kernel is memory-bound.
//
//     a CTA      several neighbouring units with `warps_of_unit` warps each; warps wait only for warps of their unit, left-over warps idle
//     a warp     512 columns of its unit in a step. A unit longer than a step of all warps is read twice except for its last step, the
//                second time from L2
//     a lane     4 g + q has whole blocks of rows g and g + 8: numbers q, 4 + q, 8 + q and 12 + q of the warp's 16. A load of four lanes
//                has 64 bytes of a row, which are two chunks. In each chunk they become four pieces of 16 bytes. For FP8, lanes two apart
//                swap pieces until four lanes store consecutive bytes. For bf16, neighbours swap halves of pieces and store two pieces each

#include "common/dependent_launch.cuh"
#include "common/global_memory.cuh"
#include "common/named_barrier.cuh"
#include "common/variant.cuh"
#include "common/warp.cuh"
#include "pack/fragment_scales.cuh"
#include "pack/fragment_words.cuh"
#include "pack/fragments.cuh"
#include "pack/relative_scale.cuh"

namespace zoo {

using Packed = Fragments<Variant::scales>;
constexpr int CHUNKS_OF_PART = 32;  // chunks that one number of `rounded` counts
constexpr int WARPS = Variant::THREADS / 32, LOADS = 4, CHUNKS = 2 * LOADS, WARPS_OF_PART = CHUNKS_OF_PART / CHUNKS;
static_assert(2 * Packed::BLOCK == COLUMNS_OF_CHUNK, "a lane's 16 bytes share a scale, and 32 are a chunk's");
static_assert((!Variant::MANY_STEPS || WARPS % WARPS_OF_PART == 0) && WARPS <= 16,
              "steps begin where parts begin; each unit has a named barrier");

struct Matrix {
    const uint8_t* first;
    int64_t stride;
};

// The blocks of a lane's two rows in one step.
struct Blocks {
    uint4 codes[LOADS][2];
    uint32_t marks[LOADS];

    // WIDE: rows of q begin at multiples of 16 bytes, otherwise at multiples of 8.
    template <bool WIDE>
    __device__ __forceinline__ void load(const LaneRows& rows, const Matrix& q, const Matrix& scale, int first, int blocks,
                                         uint32_t (&scales)[LOADS][2]) {
#pragma unroll
        for (int half = 0; half < 2; half++) {
            const uint8_t* own = rows.in(q.first, q.stride, half) + int64_t(first) * 16;
            const uint8_t* own_scale = rows.in(scale.first, scale.stride, half) + first;
#pragma unroll
            for (int i = 0; i < LOADS; i++) {
                codes[i][half] = make_uint4(0, 0, 0, 0);
                scales[i][half] = 0;
                if (!rows.exists(half) || first + 4 * i >= blocks) continue;
                if constexpr (WIDE) {
                    codes[i][half] = load_16_bytes(own + 64 * i);
                } else {
                    const uint2 one = load_8_bytes(own + 64 * i), other = load_8_bytes(own + 64 * i + 8);
                    codes[i][half] = make_uint4(one.x, one.y, other.x, other.y);
                }
                scales[i][half] = load_byte(own_scale + 4 * i);
            }
        }
    }

    __device__ __forceinline__ void load(bool wide, const LaneRows& rows, const Matrix& q, const Matrix& scale, int first,
                                         int blocks) {
        uint32_t scales[LOADS][2];
        if (wide)
            load<true>(rows, q, scale, first, blocks, scales);
        else
            load<false>(rows, q, scale, first, blocks, scales);
#pragma unroll
        for (int i = 0; i < LOADS; i++) marks[i] = mark(scales[i][0], codes[i][0]) | mark(scales[i][1], codes[i][1]) << 16;
    }

    __device__ __forceinline__ uint32_t larger(uint32_t largest) const {
#pragma unroll
        for (int i = 0; i < LOADS; i++) largest = larger_marks(largest, marks[i]);
        return largest;
    }

    // Keeps the compiler from holding halves of marks in registers.
    __device__ __forceinline__ void make_opaque() {
#pragma unroll
        for (int i = 0; i < LOADS; i++) asm volatile("" : "+r"(marks[i]));
    }

    // How many codes FP8 will round. Most weights have none.
    __device__ __forceinline__ int rounded(uint32_t largest_of_rows) const {
        const int largest[2] = {largest_scale(largest_of_rows, 0), largest_scale(largest_of_rows, 1)};
        int count = 0;
#pragma unroll
        for (int i = 0; i < LOADS; i++) {
            if (!__any_sync(0xFFFFFFFF, may_be_rounded(marks[i], 0, largest[0]) | may_be_rounded(marks[i], 1, largest[1])))
                continue;
#pragma unroll
            for (int half = 0; half < 2; half++) count += rounded_codes(codes[i][half], marks[i], half, largest[half]);
        }
        return count;
    }

    // The codes and scale bytes of load i. words[e][h + 2 s] has row h and eight columns s of 16 columns e.
    __device__ __forceinline__ uint32_t scales(int i, uint32_t largest_of_rows, Tokens tokens, uint32_t (&words)[2][4]) const {
        uint32_t both = 0;
#pragma unroll
        for (int half = 0; half < 2; half++) {
            const uint4 own = codes[i][half];
            uint32_t scale = relative_scale(marks[i], half, largest_scale(largest_of_rows, half)), mask = 0xFFFFFFFF;
            if (tokens == Tokens::bf16) {
                mask = code_mask(scale);
                scale = ScaleBytes<Variant::scales>::to_bf16(scale);
            }
            words[0][half] = own.x & mask, words[0][2 + half] = own.y & mask;
            words[1][half] = own.z & mask, words[1][2 + half] = own.w & mask;
            both |= scale << 8 * half;
        }
        return both;
    }

    // `target`: the warp's first chunk. `chunks` chunks exist from there on.
    template <Tokens TOKENS>
    __device__ __forceinline__ void store(uint32_t largest_of_rows, uint8_t* target, int chunks, int unit_of_tile,
                                          int lane) const {
        constexpr bool BF16 = TOKENS == Tokens::bf16;
        const int g = lane / 4, q = lane % 4;
        uint8_t* own = target + 512 * unit_of_tile + 64 * g + 32 * (q % 2) + (BF16 ? q / 2 * Packed::CHUNK_BYTES : 16 * (q / 2));
        uint8_t* own_scales = target + q / 2 * Packed::CHUNK_BYTES + Packed::scale_byte(unit_of_tile, 4 * g + 2 * (q % 2));
#pragma unroll
        for (int i = 0; i < LOADS; i++) {
            if (2 * i >= chunks) break;
            uint32_t words[2][4];
            const uint32_t both = scales(i, largest_of_rows, TOKENS, words);
            const bool exists = 2 * i + q / 2 < chunks;
            if constexpr (BF16) {
                // Neighbouring lanes hold instructions 0 and 1, or 2 and 3, of a chunk. Each lane gets all words of two of the four lanes.
                uint32_t exchanged[2][4];
#pragma unroll
                for (int e = 0; e < 2; e++) {
                    transpose_bytes(words[e]);
#pragma unroll
                    for (int d = 0; d < 4; d++) exchanged[d / 2][d % 2 * 2 + e] = to_bf16_word(words[e][d]);
                }
                group_transpose(exchanged, q % 2);
#pragma unroll
                for (int d = 0; d < 2; d++) {
                    const uint32_t piece[4] = {exchanged[0][2 * d], exchanged[0][2 * d + 1], exchanged[1][2 * d],
                                               exchanged[1][2 * d + 1]};
                    if (exists) store_16_bytes(own + 2 * i * Packed::CHUNK_BYTES + 16 * d, piece);
                }
            } else {
#pragma unroll
                for (int j = 0; j < 8; j++) words[j / 4][j % 4] = to_fp8_word(words[j / 4][j % 4]);
                group_transpose<2>(words, q / 2);
#pragma unroll
                for (int c = 0; c < 2; c++)
                    if (2 * i + c < chunks) store_16_bytes(own + (2 * i + c) * Packed::CHUNK_BYTES, words[c]);
            }
            if (exists) *reinterpret_cast<uint16_t*>(own_scales + 2 * i * Packed::CHUNK_BYTES) = static_cast<uint16_t>(both);
        }
    }
};

// The position of a thread among the units of a CTA.
struct ThreadPosition {
    int warp, lane, unit_of_cta, warp_of_unit;

    __device__ __forceinline__ ThreadPosition(int thread, int unit, int units_of_cta, int warps_of_unit)
        : warp(thread / 32), lane(thread % 32), unit_of_cta(unit - blockIdx.x * units_of_cta),
          warp_of_unit(warp - unit_of_cta * warps_of_unit) {}

    // A barrier for the warps of the unit.
    __device__ __forceinline__ void synchronise_unit(int warps_of_unit) const {
        synchronise_threads(unit_of_cta, 32 * warps_of_unit);
    }
};

}  // namespace zoo

// q_row, q_matrix, scales_row and scales_matrix count bytes. rounded may be null.
extern "C" __global__ void __launch_bounds__(Variant::THREADS, Variant::CTAS) ZOO_KERNEL(ZOO_PARAMETERS) {
    using namespace zoo;
    __shared__ uint32_t largest_of_warps[WARPS][8];
    __shared__ int rounded_of_warps[2][WARPS];

    let_next_kernel_launch();
    int thread = threadIdx.x, unit = blockIdx.x * units_of_cta + unsigned(thread / 32) / warps_of_unit;
    const int units = (N + ROWS_OF_UNIT * UNITS_OF_TILE - 1) / (ROWS_OF_UNIT * UNITS_OF_TILE) * UNITS_OF_TILE;
    const int64_t expert = blockIdx.y;
    const int chunks = (K + COLUMNS_OF_CHUNK - 1) / COLUMNS_OF_CHUNK, blocks = K / Packed::BLOCK;
    const int chunks_of_step = warps_of_unit * CHUNKS,
              steps = Variant::MANY_STEPS ? (chunks + chunks_of_step - 1) / chunks_of_step : 1;
    const bool wide = (reinterpret_cast<uintptr_t>(q) | q_row | q_matrix) % 16 == 0;
    wait_for_previous_kernel();
    if (unit >= min(int((blockIdx.x + 1) * units_of_cta), units)) return;

    Blocks own;
    auto load = [&](int step, const ThreadPosition& at) {
        own.load(wide, LaneRows(gates, unit, at.lane / 4, N), {q + expert * q_matrix, q_row},
                 {scales + expert * scales_matrix, scales_row},
                 2 * (step * chunks_of_step + at.warp_of_unit * CHUNKS) + at.lane % 4, blocks);
    };
    const ThreadPosition first(thread, unit, units_of_cta, warps_of_unit);
    uint32_t largest = 0;
#pragma unroll 1
    for (int step = 0; step < steps; step++) {
        load(step, first);
        largest = own.larger(largest);
    }
    // Opaque to the compiler: values computed from them would take registers that codes need.
    asm volatile("" : "+r"(unit), "+r"(thread));
    own.make_opaque();
    const ThreadPosition at(thread, unit, units_of_cta, warps_of_unit);
    largest = largest_of_four_lanes(largest);
    if (at.lane % 4 == 0) largest_of_warps[at.warp][at.lane / 4] = largest;
    at.synchronise_unit(warps_of_unit);
#pragma unroll
    for (int i = 0; i < WARPS; i += 4) {
        const int other = i + at.lane % 4;
        if (other < warps_of_unit) largest = __vmaxu2(largest, largest_of_warps[at.warp - at.warp_of_unit + other][at.lane / 4]);
    }
    largest = largest_of_four_lanes(largest);

    const int64_t unit_of_experts = expert * units + unit;
    uint8_t* tile = b + unit_of_experts / UNITS_OF_TILE * chunks * Packed::CHUNK_BYTES;
    if (at.warp_of_unit == 0 && at.lane % 4 < 2)
        row_scale[unit_of_experts * ROWS_OF_UNIT + 8 * (at.lane % 4) + at.lane / 4] = largest_scale(largest, at.lane % 4);
#pragma unroll 1
    for (int step = steps - 1; step >= 0; step--) {  // registers still hold the last step
        const int first_chunk = step * chunks_of_step + at.warp_of_unit * CHUNKS;
        if (step < steps - 1) load(step, at);
        if (rounded != nullptr) {
            const int count = __reduce_add_sync(0xFFFFFFFF, own.rounded(largest));
            if (at.lane == 0) rounded_of_warps[step % 2][at.warp] = count;
            at.synchronise_unit(warps_of_unit);
            if (at.lane == 0 && at.warp_of_unit % WARPS_OF_PART == 0 && first_chunk < chunks) {
                int count_of_part = count;
#pragma unroll
                for (int i = 1; i < WARPS_OF_PART; i++)
                    if (at.warp_of_unit + i < warps_of_unit) count_of_part += rounded_of_warps[step % 2][at.warp + i];
                const int parts = (chunks + CHUNKS_OF_PART - 1) / CHUNKS_OF_PART;
                rounded[unit_of_experts * parts + first_chunk / CHUNKS_OF_PART] = count_of_part;
            }
        }
        uint8_t* target = tile + int64_t(first_chunk) * Packed::CHUNK_BYTES;
        if (tokens == Tokens::bf16)
            own.store<Tokens::bf16>(largest, target, chunks - first_chunk, unit % UNITS_OF_TILE, at.lane);
        else
            own.store<Tokens::fp8>(largest, target, chunks - first_chunk, unit % UNITS_OF_TILE, at.lane);
    }
}
