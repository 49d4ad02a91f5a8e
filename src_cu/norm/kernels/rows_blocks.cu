// norm.fp8b128.rows: RMSNorm of x (M, K), plus a residual -> q, and a scale for 128 elements of a row; the normed rows in 16 bits as well if
// asked for. Made of:
//
//   norm/row_threads.cuh           which threads have which columns, how a row is added up
//   norm/normed_row.cuh            x to normed cells
//   common/formats/fp8b128.cuh     the rule for a scale and its elements
//   quantize/rows/split_scales.cuh which lane computes which scale
//   norm/store_elements.cuh        how lanes exchange words, for stores of 16 bytes in plain or fragment order

#include "common/formats.cuh"
#include "norm/normed_row.cuh"
#include "norm/store_elements.cuh"
#include "quantize/rows/split_scales.cuh"

using Traits = zoo::FormatOf<Variant::q, Variant::scales>;

// q_stride in bytes; scales_stride in scales. plain: from row to row. mn_major: from one block of K to the next.
extern "C" __global__ void __launch_bounds__(Variant::THREADS, Variant::CTAS) ZOO_KERNEL(ZOO_PARAMETERS) {
    using namespace zoo;
    using Format = Traits::Type;
    using Share = ElementShare<Variant::x>;
    using Cell = Input<Floats<Share::VALUES>>;
    constexpr int LANES = Format::BLOCK / Share::VALUES;
    using Split = SplitScales<LANES, Share::CELLS>;
    const auto format = Traits::make(rule, 0);
    const NormArguments norm{x, residual, weight, sum, y, rstd, M, K, x_stride, residual_stride, sum_stride, y_stride, eps};
    norm_rows<Variant::x, Variant::weight, Variant::THREADS>(norm, warps_of_row, [&](auto& row) {
        if (!row.has_row) return;
        Floats<Share::VALUES> normed[Share::CELLS];
        Split split;
        uint32_t magnitudes[Share::CELLS], words[Share::CELLS][2];
#pragma unroll
        for (int i = 0; i < Share::CELLS; i++) {
            normed[i] = row.normed(i);
            magnitudes[i] = Cell::largest(normed[i]);
        }
        if (norm.y != nullptr) row.store(normed);
        const int lane = row.threads.lane;
        split.template find<Cell>(format, magnitudes, lane);
        const int block_column = row.column - lane % LANES * Share::VALUES + Split::own_block(lane) * Share::PIECE;
        const uint32_t block = uint32_t(block_column) / Format::BLOCK;
        if (Split::stores(lane) && block_column < K)
            reinterpret_cast<uint32_t*>(scales)[(plain ? row.row : block) * scales_stride + (plain ? block : row.row)] =
                split.scale;
#pragma unroll
        for (int i = 0; i < Share::CELLS; i++) format.template encode_loaded<Cell>(normed[i], split.multiplier_of(i), words[i]);
        store_elements<Share>(row, words, q, q_stride, fragments);
    });
}
