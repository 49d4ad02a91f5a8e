// quantize.fp8b128.rows in fragment order, the order of columns in which GEMMs with packed 4-bit weights read A: x (M, K)
// of 2-byte floats -> q (M, K rounded up to 64), and a scale for 128 elements of a row. Made of:
//
//   common/formats.cuh             which format the dtypes of elements and scales choose
//   rows/matrix.cuh                where a warp's cells come from
//   rows/row_share.cuh             which columns a warp has, how lanes exchange words for fragment order
//
// A warp takes 1024 columns of a row. A lane takes four cells of 16 bytes, 256 columns apart. 16 lanes share a block.

#include "common/dependent_launch.cuh"
#include "common/formats.cuh"
#include "common/variant.cuh"
#include "common/warp.cuh"
#include "quantize/rows/matrix.cuh"
#include "quantize/rows/row_share.cuh"

using Traits = zoo::FormatOf<Variant::q, Variant::scales>;

// x_stride in elements; q_stride in bytes; scales_stride in scales. plain: from row to row. mn_major: from one block of K
// to the next.
extern "C" __global__ void __launch_bounds__(Variant::THREADS, Variant::CTAS) ZOO_KERNEL(ZOO_PARAMETERS) {
    using namespace zoo;
    using Source = Matrix<Variant::x>;
    using In = Source::In;
    using Format = Traits::Type;
    using Share = RowShare<Format, Source>;
    constexpr int LANES = Format::BLOCK / Share::VALUES;

    let_next_kernel_launch();
    const auto format = Traits::make(rule, 0);
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
        if (here >= K) words[i][0] = words[i][1] = 0;  // a NaN multiplier would make NaN of these
        if (lane % LANES == 0 && here < K)
            reinterpret_cast<uint32_t*>(scales)[plain ? row * scales_stride + block : block * scales_stride + row] = scale;
    }

    // RowShare::store_fragments selects the sent word by a variable index. Here ptxas would keep the words in local memory.
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
