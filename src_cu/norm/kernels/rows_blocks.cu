// norm.fp8b128.rows: RMSNorm of x (M, K), plus a residual -> q, and a scale for 128 elements of a row; the normed rows in 16 bits as well if
// asked for. Made of:
//
//   norm/row_threads.cuh           which threads have which columns, how a row is added up
//   norm/normed_row.cuh            x to normed cells
//   common/formats/fp8b128.cuh     the rule for a scale and its elements
//   norm/store_elements.cuh        how lanes exchange words, for stores of 16 bytes in plain or fragment order

#include "common/formats.cuh"
#include "common/variant.cuh"
#include "common/warp.cuh"
#include "norm/normed_row.cuh"
#include "norm/store_elements.cuh"

using Traits = zoo::FormatOf<Variant::q, Variant::scales>;

// q_stride in bytes; scales_stride in scales. plain: from row to row. mn_major: from one block of K to the next.
extern "C" __global__ void __launch_bounds__(Variant::THREADS, Variant::CTAS) ZOO_KERNEL(ZOO_PARAMETERS) {
    using namespace zoo;
    using Format = Traits::Type;
    using Share = ElementShare<Variant::x>;
    using Cell = Input<Floats<Share::VALUES>>;
    constexpr int LANES = Format::BLOCK / Share::VALUES;
    const auto format = Traits::make(rule, 0);
    const NormArguments norm{x, residual, weight, sum, y, rstd, M, K, x_stride, residual_stride, sum_stride, y_stride, eps};
    norm_rows<Variant::x, Variant::weight, Variant::THREADS>(norm, warps_of_row, [&](auto& row) {
        uint32_t words[Share::CELLS][2];
#pragma unroll
        for (int i = 0; i < Share::CELLS; i++) {
            const auto values = row.normed(i);
            row.store(i, values);
            const uint32_t magnitude = group_max<LANES>(Cell::magnitude(Cell::largest(values)));
            const uint32_t scale = format.scale_of(Cell::magnitude_to_float(magnitude));
            format.template encode_loaded<Cell>(values, format.multiplier(scale), words[i]);
            if (!row.inside(i)) words[i][0] = words[i][1] = 0;  // a NaN multiplier would make NaN of these
            const int block = (row.column + i * Share::PIECE) / Format::BLOCK;
            if (row.threads.lane % LANES == 0 && row.inside(i))
                reinterpret_cast<uint32_t*>(scales)[plain ? row.row * scales_stride + block : block * scales_stride + row.row] =
                    scale;
        }
        store_elements<Share>(row, words, q, q_stride, fragments);
    });
}
