// quantize.fp8b128.rows with the columns of q in the order of register fragments, as products with packed 4-bit weights take A: x (M, K),
// 2-byte floats -> q (M, K rounded up to 64), and a scale for every 128 of a row.
//
// A warp takes 1024 columns of a row, a lane four cells of 16 bytes, 256 columns from one to the next: 16 lanes share a block. How words
// then change lanes is in token_rows.cuh.

#include "common/formats.cuh"
#include "common/variant.cuh"
#include "quantize/token_rows.cuh"
#include "quantize/whole_blocks.cuh"

using Of = zoo::FormatOf<Variant::q, Variant::scales>;

// x_stride in elements; q_stride in bytes; scales_stride in scales: plain, from row to row; else from one block of K to the next.
extern "C" __global__ void __launch_bounds__(Variant::THREADS, Variant::CTAS)
    ZOO_KERNEL(const uint8_t* x, Of::Argument argument, uint8_t* q, float* scales, int64_t M, int64_t K, int64_t x_stride,
               int64_t q_stride, int64_t scales_stride, int32_t plain) {
    using namespace zoo;
    using Source = Matrix<Variant::x>;
    using In = Source::In;
    using Format = Of::Type;
    using Share = ShareOfRow<Format, Source>;
    constexpr int LANES = Format::BLOCK / Share::VALUES;

    let_next_kernel_launch();
    const auto format = Of::make(argument, 0);
    const int lane = threadIdx.x % 32, shares_of_row = (K + Share::COLUMNS - 1) / Share::COLUMNS;
    const int64_t index = int64_t(blockIdx.x) * (Variant::THREADS / 32) + threadIdx.x / 32, row = index / shares_of_row;
    if (row >= M) return;
    const int column = int(index - row * shares_of_row) * Share::COLUMNS + lane * Share::VALUES;
    wait_for_previous_kernel();
    Source source{x, x_stride};
    source.start_at(row, column);
    const Share share{source, lane, column, 0, int(K), true};
    typename In::Cell cells[Share::CELLS];
    share.load(0, cells);

    uint32_t words[Share::CELLS][2];
#pragma unroll
    for (int i = 0; i < Share::CELLS; i++) {
        const uint32_t magnitude = group_max<LANES>(In::magnitude(In::largest(cells[i])));
        const uint32_t scale = format.scale_of(In::magnitude_to_float(magnitude));
        format.template encode_loaded<In>(cells[i], format.multiplier(scale), words[i]);
        const int here = column + i * Share::PIECE, block = here / Format::BLOCK;
        if (here >= K) words[i][0] = words[i][1] = 0;  // next to NaN, too
        if (lane % LANES == 0 && here < K)
            scales[plain ? row * scales_stride + block : block * scales_stride + row] = __uint_as_float(scale);
    }

    const int cell = lane / 2 % 4, odd = lane % 2, chunk = column - lane % 8 * Share::VALUES + cell * Share::PIECE;
    group_transpose<2>(words, cell);
    uint32_t first[4], second[4];
#pragma unroll
    for (int i = 0; i < 4; i++) {
        const uint32_t received = __shfl_xor_sync(0xFFFFFFFF, odd ? words[i][0] : words[i][1], 1);
        first[i] = odd ? received : words[i][0];
        second[i] = odd ? words[i][1] : received;
    }
    if (chunk >= K) return;
    q += row * q_stride + chunk + 16 * odd;
    store_16_bytes(q, first);
    store_16_bytes(q + 32, second);
}
