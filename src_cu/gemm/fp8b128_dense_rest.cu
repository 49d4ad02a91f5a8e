// gemm.fp8b128.dense as in fp8b128_dense_many.cu, whole waves of tiles; what is left after them is shared by clusters of two or four CTAs.

#include "gemm/pipeline/shared_rest.cuh"

namespace zoo {

using Tile =
    Fp8b128Tile<Variant::TOKENS, Variant::WEIGHTS, Variant::STAGES, Variant::WARPGROUPS, Variant::SWAPPED, Variant::OVERLAPPED>;
using From = EvenOperands<Tile>;
using Order = RestOrder<Tile, Variant::BAND>;
using Way = ZOO_WAY<Tile>;

}  // namespace zoo

#include "gemm/fp8b128_dense.cuh"
