// requantize.fp8b128.rows and requantize.fp8b128.squares: e4m3 with any f32 scales to e4m3 with scales that are powers of two, as
// gemm.fp8b128 needs them on Blackwell.
//
// A scale becomes the next power of two, and its elements shrink by the quotient of both scales. The quotient is between 1/2 and 1, so no
// element saturates.
//
//     a CTA's part     | 64 threads x 16 columns |       4 rows at a time, 32 rows in all, which share a scale with SQUARE = 128
//
// A scale of 0 stays 0, and its elements become zeros. A scale that is negative, NaN or above 2^127 becomes NaN, and so do its elements.
//
//     common/fp8.cuh    how are elements decoded and encoded?
//     common/e8m0.cuh   which byte is a power of two?

#include <cstdint>

#include "common/dependent_launch.cuh"
#include "common/e8m0.cuh"
#include "common/fp8.cuh"
#include "common/global_memory.cuh"
#include "common/variant.cuh"

namespace zoo {

constexpr int BLOCK = 128, PIECE = 16, LANES_OF_ROW = 64, ROWS_AT_ONCE = Variant::THREADS / LANES_OF_ROW;
constexpr int PART_COLUMNS = PIECE * LANES_OF_ROW, PART_ROWS = ROWS_AT_ONCE * Variant::ROWS_PER_THREAD;
static_assert(BLOCK % PART_ROWS == 0);

// The bits of the power of two at or above a scale, at least 2^-126, which is a normal number.
__device__ __forceinline__ uint32_t power_of_two_above(uint32_t bits) {
    constexpr uint32_t LARGEST = 0x7F000000, SMALLEST = 0x00800000, MANTISSA = 0x007FFFFF, NOT_A_NUMBER = 0x7FFFFFFF;
    if (bits == 0) return 0;
    return bits > LARGEST ? NOT_A_NUMBER : max((bits + MANTISSA) & ~MANTISSA, SMALLEST);
}

// scale / power, exactly, because 2^-e is a float for every power 2^e.
__device__ __forceinline__ float shrink_factor(uint32_t scale, uint32_t power) {
    if (power > 0x7F000000) return __uint_as_float(power);
    return __fmul_rn(__uint_as_float(scale), __uint_as_float(max(0x7F000000 - power, 0x00400000)));
}

__device__ __forceinline__ uint32_t shrink_four(uint32_t four, float factor) {
    uint32_t pairs[2];
#pragma unroll
    for (int i = 0; i < 2; i++) {
        const float first = Fp8<e4m3>::decode(four >> 16 * i & 0xFF), second = Fp8<e4m3>::decode(four >> (16 * i + 8) & 0xFF);
        pairs[i] = Fp8<e4m3>::encode(__fmul_rn(first, factor), __fmul_rn(second, factor));
    }
    return pairs[1] << 16 | pairs[0];
}

// Steps count elements.
struct Steps {
    int64_t matrix, row, block;

    __device__ __forceinline__ int64_t at(int row_index, int block_index) const {
        return blockIdx.y * matrix + row_index * row + block_index * block;
    }
};

}  // namespace zoo

extern "C" __global__ void __launch_bounds__(Variant::THREADS) ZOO_KERNEL(ZOO_PARAMETERS) {
    using namespace zoo;
    const int lane = threadIdx.x % LANES_OF_ROW, first_of_cta = threadIdx.x / LANES_OF_ROW;
    const int column = int(blockIdx.x) % parts * PART_COLUMNS + lane * PIECE,
              first = int(blockIdx.x) / parts * PART_ROWS + first_of_cta;
    const Steps from{q_matrix, q_row, 0}, to{q_out_matrix, q_out_row, 0}, old_scales{scales_matrix, scales_row, scales_block},
        new_scales{scales_out_matrix, scales_out_row, scales_out_block};
    let_next_kernel_launch();
    wait_for_previous_kernel();
    if (column >= columns) return;
    uint4 pieces[Variant::ROWS_PER_THREAD];
    uint32_t old[Variant::ROWS_PER_THREAD];
#pragma unroll
    for (int i = 0; i < Variant::ROWS_PER_THREAD; i++) {
        const int row = first + i * ROWS_AT_ONCE;
        if (row >= rows) break;
        pieces[i] = load_16_bytes(q + from.at(row, 0) + column);
        old[i] = scales[old_scales.at(row / Variant::SQUARE, column / BLOCK)];
    }
#pragma unroll
    for (int i = 0; i < Variant::ROWS_PER_THREAD; i++) {
        const int row = first + i * ROWS_AT_ONCE;
        if (row >= rows) break;
        const uint32_t power = power_of_two_above(old[i]);
        const float factor = shrink_factor(old[i], power);
        const uint32_t words[4] = {shrink_four(pieces[i].x, factor), shrink_four(pieces[i].y, factor),
                                   shrink_four(pieces[i].z, factor), shrink_four(pieces[i].w, factor)};
        store_16_bytes(q_out + to.at(row, 0) + column, words);
        if (column % BLOCK != 0 || row % Variant::SQUARE != 0) continue;
        const int64_t index = new_scales.at(row / Variant::SQUARE, column / BLOCK);
        if (scales_out_are_ue8m0)
            scales_out[index] = uint8_t(e8m0_of_power_of_two(power));
        else
            reinterpret_cast<uint32_t*>(scales_out)[index] = power;
    }
}
