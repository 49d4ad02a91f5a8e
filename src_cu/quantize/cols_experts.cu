// quantize.<format>.cols.experts: quantize.<format>.cols of each matrix of x (E, N, K): q (E, K, N).
//
// Where matrices lie is in experts.cuh, everything else is what quantize.<format>.cols is made of (cols.cu).

#include "common/formats.cuh"
#include "common/variant.cuh"
#include "quantize/cols.cuh"
#include "quantize/experts.cuh"

using Tile = zoo::Tile<Variant::x, Variant::ROWS, Variant::COLUMNS>;
using Of = zoo::FormatOf<Variant::q, Variant::scales>;
using Groups = zoo::Experts<Of::Type, Tile>;

namespace zoo {
constexpr int DYNAMIC_SHARED_BYTES = BYTES_OF_COLS<SharedOfCols<Variant::x, ::Of::Type, ::Tile>>;
}  // namespace zoo

// Strides of q in bytes, those of scales as in scale_layout.cuh.
extern "C" __global__ void __launch_bounds__(Tile::THREADS, Variant::CTAS)
    ZOO_KERNEL(const __grid_constant__ zoo::TensorMap x_map, const __grid_constant__ zoo::TensorMap q_map, Of::Argument format,
               int64_t entry_step, uint8_t* q, Groups::Scale* scales, int64_t N, int64_t K, int64_t q_row, int64_t q_matrix,
               int64_t scales_row, int64_t scales_matrix, int64_t plain) {
    const Groups experts = {scales, scales_row, scales_matrix, q_matrix, N, entry_step};
    zoo::quantize_cols<Variant::x, Of, Tile>(zoo::layout_of<Groups::Scale>(plain), format, zoo::MatricesOfMap{x_map}, q_map, q,
                                             q_row, K, experts);
}
