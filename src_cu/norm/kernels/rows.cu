// norm.rows: y (M, K) = RMSNorm of x, plus a residual, in the dtype of x. Made of:
//
//   norm/row_threads.cuh           which threads have which columns, how a row is added up
//   norm/normed_row.cuh            the kernel

#include "norm/normed_row.cuh"

extern "C" __global__ void __launch_bounds__(Variant::THREADS, Variant::CTAS) ZOO_KERNEL(ZOO_PARAMETERS) {
    using namespace zoo;
    const NormArguments norm{x, residual, weight, sum, y, rstd, M, K, x_stride, residual_stride, sum_stride, y_stride, eps};
    norm_rows<Variant::x, Variant::weight, Variant::THREADS>(norm, warps_of_row, [](auto& row) {
        if (!row.has_row) return;
        zoo::Floats<row.VALUES> normed[row.CELLS];
#pragma unroll
        for (int i = 0; i < row.CELLS; i++) normed[i] = row.normed(i);
        row.store(normed);
    });
}
