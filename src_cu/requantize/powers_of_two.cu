// requantize.fp8b128.{rows, squares}: e4m3 with any f32 scales -> e4m3 whose scales are powers of two, as gemm.fp8b128 takes them on
// Blackwell. A scale becomes the power of two at or above it, and elements shrink by what it grew: to between half and all of what
// they were, so that none saturates.
//
//     a CTA's part     | 64 threads x 16 columns |       4 rows at a time, 32 in all: of one square
//
// A scale of 0 stays 0, and its elements become zeros. One that is negative, NaN or above 2^127 becomes NaN, and so do its elements.

#include <cstdint>

#include "common/dependent_launch.cuh"
#include "common/fp8.cuh"
#include "common/global_memory.cuh"
#include "common/variant.cuh"
#include "scales/power_of_two.cuh"

namespace zoo {

constexpr int BLOCK = 128, PIECE = 16, LANES_OF_ROW = 64, ROWS_AT_ONCE = Variant::THREADS / LANES_OF_ROW;
constexpr int PART_COLUMNS = PIECE * LANES_OF_ROW, PART_ROWS = ROWS_AT_ONCE * Variant::TURNS;
static_assert(BLOCK % PART_ROWS == 0);

// Bits of the power of two at or above a scale, from 2^-126 on: a normal number, and so is its inverse but for the largest's.
__device__ __forceinline__ uint32_t power_of_two_above(uint32_t bits) {
    constexpr uint32_t LARGEST = 0x7F000000, SMALLEST = 0x00800000, MANTISSA = 0x007FFFFF, NOT_A_NUMBER = 0x7FFFFFFF;
    if (bits == 0) return 0;
    return bits > LARGEST ? NOT_A_NUMBER : max((bits + MANTISSA) & ~MANTISSA, SMALLEST);
}

// scale / power: exact, since 2^-e is a number for every power 2^e.
__device__ __forceinline__ float shrinking(uint32_t scale, uint32_t power) {
    if (power > 0x7F000000) return __uint_as_float(power);
    return __fmul_rn(__uint_as_float(scale), __uint_as_float(max(0x7F000000 - power, 0x00400000)));
}

__device__ __forceinline__ uint32_t shrunk(uint32_t four, float factor) {
    uint32_t pairs[2];
#pragma unroll
    for (int i = 0; i < 2; i++) {
        const float first = Fp8<e4m3>::decode(four >> 16 * i & 0xFF), second = Fp8<e4m3>::decode(four >> (16 * i + 8) & 0xFF);
        pairs[i] = Fp8<e4m3>::encode(__fmul_rn(first, factor), __fmul_rn(second, factor));
    }
    return pairs[1] << 16 | pairs[0];
}

// Strides in elements.
struct Place {
    int64_t matrix, row, block;

    __device__ __forceinline__ int64_t at(int row_index, int block_index) const {
        return blockIdx.y * matrix + row_index * row + block_index * block;
    }
};

}  // namespace zoo

extern "C" __global__ void __launch_bounds__(Variant::THREADS)
    ZOO_KERNEL(const uint8_t* q, const uint32_t* scales, uint8_t* q_out, uint8_t* scales_out, int scales_out_are_ue8m0, int rows,
               int columns, int parts, int64_t q_matrix, int64_t q_row, int64_t q_out_matrix, int64_t q_out_row,
               int64_t scales_matrix, int64_t scales_row, int64_t scales_block, int64_t scales_out_matrix, int64_t scales_out_row,
               int64_t scales_out_block) {
    using namespace zoo;
    const int lane = threadIdx.x % LANES_OF_ROW, own = threadIdx.x / LANES_OF_ROW;
    const int column = int(blockIdx.x) % parts * PART_COLUMNS + lane * PIECE, first = int(blockIdx.x) / parts * PART_ROWS + own;
    const Place from{q_matrix, q_row, 0}, to{q_out_matrix, q_out_row, 0}, of_scale{scales_matrix, scales_row, scales_block},
        of_new{scales_out_matrix, scales_out_row, scales_out_block};
    let_next_kernel_launch();
    wait_for_previous_kernel();
    if (column >= columns) return;
    uint4 pieces[Variant::TURNS];
    uint32_t old[Variant::TURNS];
#pragma unroll
    for (int i = 0; i < Variant::TURNS; i++) {
        const int row = first + i * ROWS_AT_ONCE;
        if (row >= rows) break;
        pieces[i] = load_16_bytes(q + from.at(row, 0) + column);
        old[i] = scales[of_scale.at(row / Variant::SQUARE, column / BLOCK)];
    }
#pragma unroll
    for (int i = 0; i < Variant::TURNS; i++) {
        const int row = first + i * ROWS_AT_ONCE;
        if (row >= rows) break;
        const uint32_t power = power_of_two_above(old[i]);
        const float factor = shrinking(old[i], power);
        const uint32_t words[4] = {shrunk(pieces[i].x, factor), shrunk(pieces[i].y, factor), shrunk(pieces[i].z, factor),
                                   shrunk(pieces[i].w, factor)};
        store_16_bytes(q_out + to.at(row, 0) + column, words);
        if (column % BLOCK != 0 || row % Variant::SQUARE != 0) continue;
        const int64_t place = of_new.at(row / Variant::SQUARE, column / BLOCK);
        if (scales_out_are_ue8m0)
            scales_out[place] = uint8_t(e8m0_of_power_of_two(power));
        else
            reinterpret_cast<uint32_t*>(scales_out)[place] = power;
    }
}
