// norm.fp8token.rows: RMSNorm of x (M, K), plus a residual -> q, and a scale for every row; the normed rows in 16 bits as well if asked for.
// Made of:
//
//   norm/row_threads.cuh           which threads have which columns, how a row is added up
//   norm/normed_row.cuh            x to normed cells
//   common/formats/fp8b128.cuh     the rule for a scale and its elements
//   norm/store_elements.cuh        how lanes exchange words, for stores of 16 bytes in plain or fragment order

#include "common/formats/fp8b128.cuh"
#include "common/variant.cuh"
#include "norm/normed_row.cuh"
#include "norm/store_elements.cuh"

// q_stride in bytes.
extern "C" __global__ void __launch_bounds__(Variant::THREADS, Variant::CTAS) ZOO_KERNEL(ZOO_PARAMETERS) {
    using namespace zoo;
    using Format = Fp8b128<Scaling::exact>;
    using Share = ElementShare<Variant::x>;
    using Cell = Input<Floats<Share::VALUES>>;
    __shared__ uint32_t maxima[Variant::THREADS / 32];
    const NormArguments norm{x, residual, weight, sum, y, rstd, M, K, x_stride, residual_stride, sum_stride, y_stride, eps};
    norm_rows<Variant::x, Variant::weight, Variant::THREADS>(norm, warps_of_row, [&](auto& row) {
        uint32_t largest = 0;
        Floats<Share::VALUES> normed[Share::CELLS];
#pragma unroll
        for (int i = 0; i < Share::CELLS; i++) {
            normed[i] = row.normed(i);
            if (row.inside(i)) largest = max(largest, Cell::magnitude(Cell::largest(normed[i])));  // a row may have no column
        }
        largest = row.threads.largest(largest, maxima);
        if (!row.has_row) return;
        if (norm.y != nullptr) row.store(normed);
        const Format format;
        const uint32_t scale = format.scale_of(Cell::magnitude_to_float(largest));
        if (row.threads.first_of_row()) scales[row.row] = __uint_as_float(scale);
        uint32_t words[Share::CELLS][2];
#pragma unroll
        for (int i = 0; i < Share::CELLS; i++) format.template encode_loaded<Cell>(normed[i], format.multiplier(scale), words[i]);
        store_elements<Share>(row, words, q, q_stride, fragments);
    });
}
