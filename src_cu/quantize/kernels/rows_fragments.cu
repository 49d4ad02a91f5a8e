// quantize.fp8b128.rows in fragment order, the order of columns in which GEMMs with packed 4-bit weights read A: x (M, K)
// of 2-byte floats -> q (M, K rounded up to 64), and a scale for 128 elements of a row. Made of:
//
//   common/formats.cuh             which format the dtypes of elements and scales choose
//   rows/matrix.cuh                where a warp's cells come from
//   rows/row_share.cuh             which columns a warp has, how lanes exchange words for fragment order
//   rows/split_scales.cuh          which lane computes which scale
//
// A warp has 1024 columns of a row. A lane has four cells of 16 bytes, 256 columns apart. 16 lanes share a block.

#include "common/dependent_launch.cuh"
#include "common/formats.cuh"
#include "quantize/rows/matrix.cuh"
#include "quantize/rows/row_share.cuh"
#include "quantize/rows/split_scales.cuh"

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
    using Split = SplitScales<LANES, Share::CELLS>;

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

    Split split;
    uint32_t magnitudes[Share::CELLS], words[Share::CELLS][2];
#pragma unroll
    for (int i = 0; i < Share::CELLS; i++) magnitudes[i] = In::largest(cells[i]);
    split.find<In>(format, magnitudes, lane);
    const int block_column = column - lane % LANES * Share::VALUES + Split::own_block(lane) * Share::PIECE;
    const int block = block_column / Format::BLOCK;
    if (Split::stores(lane) && block_column < K)
        reinterpret_cast<uint32_t*>(scales)[plain ? row * scales_stride + block : block * scales_stride + row] = split.scale;
#pragma unroll
    for (int i = 0; i < Share::CELLS; i++) format.template encode_loaded<In>(cells[i], split.multiplier_of(i), words[i]);
    share.store_fragments(words, column, q + row * q_stride);
}
