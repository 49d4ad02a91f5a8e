// pack.mxfp4.fragments: 4-bit weights of experts (G, N, K / 2) whose scales become relative to the largest of their row -> the order in which
// a warpgroup takes them.
//
// fragments.cuh has the units. All columns of a unit are on their way at once and wait in registers, so what a row's scales are
// relative to, the largest of a block that has a code, is known as soon as they are there: nothing is read to find it. Memory-bound.
//
//     a CTA      several units side by side, `warps_of_unit` warps each, which wait for each other only; what is left over of its warps idles
//     a warp     512 columns of its unit a turn. A unit of more than all warps of a CTA take in a turn is read twice but for its last
//                turn, the second time from L2
//     a lane     4 g + q has whole blocks: those at q, 4 + q, 8 + q, 12 + q of the warp's 16, of the rows g and g + 8. In one load four
//                lanes have 64 bytes of a row, which are two chunks. Packed they are four pieces of 16 bytes of each: for FP8 lanes two apart
//                swap pieces, until what four lanes store lies side by side; for bf16 neighbours swap halves of pieces, and store two each.

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
constexpr int CHUNKS_OF_PART = 32;  // what is counted in one number of `rounded`
constexpr int WARPS = Variant::THREADS / 32, LOADS = 4, CHUNKS = 2 * LOADS, WARPS_OF_PART = CHUNKS_OF_PART / CHUNKS;
static_assert(2 * Packed::BLOCK == COLUMNS_OF_CHUNK, "a lane's 16 bytes share a scale, and 32 are a chunk's");
static_assert((!Variant::LONG || WARPS % WARPS_OF_PART == 0) && WARPS <= 16,
              "turns begin where parts do; a barrier for each unit");

struct Matrix {
    const uint8_t* first;
    int64_t stride;
};

// A lane's blocks of a turn, of each of its two rows.
struct Blocks {
    uint4 codes[LOADS][2];
    uint32_t marks[LOADS];

    // WIDE: rows of q begin at multiples of 16 bytes, not of 8.
    template <bool WIDE>
    __device__ __forceinline__ void load(const RowPair& rows, const Matrix& q, const Matrix& scale, int first, int blocks,
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

    __device__ __forceinline__ void load(bool wide, const RowPair& rows, const Matrix& q, const Matrix& scale, int first,
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

    // Or what was made of them waits in registers beside them.
    __device__ __forceinline__ void forget_halves() {
#pragma unroll
        for (int i = 0; i < LOADS; i++) asm volatile("" : "+r"(marks[i]));
    }

    // How many codes fp8 will round: in most weights none.
    __device__ __forceinline__ int rounded(uint32_t of_rows) const {
        const int largest[2] = {largest_scale(of_rows, 0), largest_scale(of_rows, 1)};
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

    // Of load i: the codes of both rows, word h + 2 s of 16 columns e, eight of them each, and the bytes of their scales.
    __device__ __forceinline__ uint32_t scales(int i, uint32_t of_rows, Tokens tokens, uint32_t (&words)[2][4]) const {
        uint32_t both = 0;
#pragma unroll
        for (int half = 0; half < 2; half++) {
            const uint4 own = codes[i][half];
            uint32_t scale = relative_scale(marks[i], half, largest_scale(of_rows, half)), kept = 0xFFFFFFFF;
            if (tokens == Tokens::bf16) {
                kept = kept_of_codes(scale);
                scale = ScalesOfBf16<Variant::scales>::from(scale);
            }
            words[0][half] = own.x & kept, words[0][2 + half] = own.y & kept;
            words[1][half] = own.z & kept, words[1][2 + half] = own.w & kept;
            both |= scale << 8 * half;
        }
        return both;
    }

    // `target`: the first of the warp's chunks, of which `chunks` are there.
    template <Tokens TOKENS>
    __device__ __forceinline__ void store(uint32_t of_rows, uint8_t* target, int chunks, int place, int lane) const {
        constexpr bool BF16 = TOKENS == Tokens::bf16;
        const int g = lane / 4, q = lane % 4;
        uint8_t* own = target + 512 * place + 64 * g + 32 * (q % 2) + (BF16 ? q / 2 * Packed::CHUNK_BYTES : 16 * (q / 2));
        uint8_t* own_scales = target + q / 2 * Packed::CHUNK_BYTES + Packed::scale_byte(place, 4 * g + 2 * (q % 2));
#pragma unroll
        for (int i = 0; i < LOADS; i++) {
            if (2 * i >= chunks) break;
            uint32_t words[2][4];
            const uint32_t both = scales(i, of_rows, TOKENS, words);
            const bool exists = 2 * i + q / 2 < chunks;
            if constexpr (BF16) {
                // Lanes that are neighbours have a chunk's instructions 0 and 1, 2 and 3; of four lanes' words each gets all of two lanes.
                uint32_t pairs[2][4];
#pragma unroll
                for (int e = 0; e < 2; e++) {
                    transpose_bytes(words[e]);
#pragma unroll
                    for (int d = 0; d < 4; d++) pairs[d / 2][d % 2 * 2 + e] = nested(words[e][d]);
                }
                group_transpose(pairs, q % 2);
#pragma unroll
                for (int d = 0; d < 2; d++) {
                    const uint32_t piece[4] = {pairs[0][2 * d], pairs[0][2 * d + 1], pairs[1][2 * d], pairs[1][2 * d + 1]};
                    if (exists) store_16_bytes(own + 2 * i * Packed::CHUNK_BYTES + 16 * d, piece);
                }
            } else {
#pragma unroll
                for (int j = 0; j < 8; j++) words[j / 4][j % 4] = braided(words[j / 4][j % 4]);
                group_transpose<2>(words, q / 2);
#pragma unroll
                for (int c = 0; c < 2; c++)
                    if (2 * i + c < chunks) store_16_bytes(own + (2 * i + c) * Packed::CHUNK_BYTES, words[c]);
            }
            if (exists) *reinterpret_cast<uint16_t*>(own_scales + 2 * i * Packed::CHUNK_BYTES) = static_cast<uint16_t>(both);
        }
    }
};

// Where a thread is, of units that a CTA has side by side.
struct Place {
    int warp, lane, unit_of_cta, warp_of_unit;

    __device__ __forceinline__ Place(int thread, int unit, int units_of_cta, int warps_of_unit)
        : warp(thread / 32), lane(thread % 32), unit_of_cta(unit - blockIdx.x * units_of_cta),
          warp_of_unit(warp - unit_of_cta * warps_of_unit) {}

    // The warps of its unit.
    __device__ __forceinline__ void meet(int warps_of_unit) const { synchronise_threads(unit_of_cta, 32 * warps_of_unit); }
};

}  // namespace zoo

// q_row, q_matrix, scales_row and scales_matrix in bytes. rounded may be null.
extern "C" __global__ void __launch_bounds__(Variant::THREADS, Variant::CTAS)
    ZOO_KERNEL(const uint8_t* q, const uint8_t* scales, uint8_t* b, uint8_t* row_scale, int* rounded, int32_t N, int32_t K,
               int64_t q_row, int64_t q_matrix, int64_t scales_row, int64_t scales_matrix, int32_t launched_gates,
               int32_t launched_tokens, uint32_t warps_of_unit, uint32_t units_of_cta) {
    using namespace zoo;
    __shared__ uint32_t of_warps[WARPS][8];
    __shared__ int rounded_by[2][WARPS];

    let_next_kernel_launch();
    int thread = threadIdx.x, unit = blockIdx.x * units_of_cta + unsigned(thread / 32) / warps_of_unit;
    const int units = (N + ROWS_OF_UNIT * UNITS_OF_TILE - 1) / (ROWS_OF_UNIT * UNITS_OF_TILE) * UNITS_OF_TILE;
    const int64_t expert = blockIdx.y;
    const int chunks = (K + COLUMNS_OF_CHUNK - 1) / COLUMNS_OF_CHUNK, blocks = K / Packed::BLOCK;
    const int step = warps_of_unit * CHUNKS, turns = Variant::LONG ? (chunks + step - 1) / step : 1;  // chunks from turn to turn
    const bool wide = (reinterpret_cast<uintptr_t>(q) | q_row | q_matrix) % 16 == 0;
    wait_for_previous_kernel();
    if (unit >= min(int((blockIdx.x + 1) * units_of_cta), units)) return;

    Blocks own;
    auto load = [&](int turn, const Place& at) {
        const Gates gates = gates_of(launched_gates);
        own.load(wide, RowPair(gates, unit, at.lane / 4, N), {q + expert * q_matrix, q_row},
                 {scales + expert * scales_matrix, scales_row}, 2 * (turn * step + at.warp_of_unit * CHUNKS) + at.lane % 4,
                 blocks);
    };
    const Place first(thread, unit, units_of_cta, warps_of_unit);
    uint32_t largest = 0;
#pragma unroll 1
    for (int turn = 0; turn < turns; turn++) {
        load(turn, first);
        largest = own.larger(largest);
    }
    // Opaque: or what follows from them waits in registers, which codes need.
    asm volatile("" : "+r"(unit), "+r"(thread));
    own.forget_halves();
    const Place at(thread, unit, units_of_cta, warps_of_unit);
    largest = largest_of_four_lanes(largest);
    if (at.lane % 4 == 0) of_warps[at.warp][at.lane / 4] = largest;
    at.meet(warps_of_unit);
#pragma unroll
    for (int i = 0; i < WARPS; i += 4) {
        const int other = i + at.lane % 4;
        if (other < warps_of_unit) largest = __vmaxu2(largest, of_warps[at.warp - at.warp_of_unit + other][at.lane / 4]);
    }
    largest = largest_of_four_lanes(largest);

    const int64_t unit_of_all = expert * units + unit;
    uint8_t* tile = b + unit_of_all / UNITS_OF_TILE * chunks * Packed::CHUNK_BYTES;
    if (at.warp_of_unit == 0 && at.lane % 4 < 2)
        row_scale[unit_of_all * ROWS_OF_UNIT + 8 * (at.lane % 4) + at.lane / 4] = largest_scale(largest, at.lane % 4);
#pragma unroll 1
    for (int turn = turns - 1; turn >= 0; turn--) {  // the last one is there
        const int first_chunk = turn * step + at.warp_of_unit * CHUNKS;
        if (turn < turns - 1) load(turn, at);
        if (rounded != nullptr) {
            const int count = __reduce_add_sync(0xFFFFFFFF, own.rounded(largest));
            if (at.lane == 0) rounded_by[turn % 2][at.warp] = count;
            at.meet(warps_of_unit);
            if (at.lane == 0 && at.warp_of_unit % WARPS_OF_PART == 0 && first_chunk < chunks) {
                int of_part = count;
#pragma unroll
                for (int i = 1; i < WARPS_OF_PART; i++)
                    if (at.warp_of_unit + i < warps_of_unit) of_part += rounded_by[turn % 2][at.warp + i];
                const int parts = (chunks + CHUNKS_OF_PART - 1) / CHUNKS_OF_PART;
                rounded[unit_of_all * parts + first_chunk / CHUNKS_OF_PART] = of_part;
            }
        }
        uint8_t* target = tile + int64_t(first_chunk) * Packed::CHUNK_BYTES;
        if (static_cast<Tokens>(launched_tokens) == Tokens::bf16)
            own.store<Tokens::bf16>(largest, target, chunks - first_chunk, unit % UNITS_OF_TILE, at.lane);
        else
            own.store<Tokens::fp8>(largest, target, chunks - first_chunk, unit % UNITS_OF_TILE, at.lane);
    }
}
