// Not a GEMM: a kernel with a result that is easy to check, started the way a GEMM is.
//
// With A and B read as bytes (0..255), mb = m / BLOCK_M and k = 32 * (mb % (K / 32)) + m % 32:
//
//     D[m, n] = alpha * (n < K ? A[m, n] : 0) + B[n, k] + (bias ? bias[n] : 0) + shift
//
// computed in f32, fused where the compiler can (exact for small integers and alpha a power of two), rounded to D's
// type. The zero for n >= K is the map's out-of-bounds fill. D is cut into tiles of BLOCK_M x 128, numbered along n
// first; CTA c of a grid of g takes tiles c, c + g, c + 2g, ...; for each tile t < T it writes
//
//     who[t] = c + 65536 * (the blockIdx of the last CTA in its cluster)        = c for a cluster of one
//
// Shared memory: BLOCK_M rows of 128 bytes of A (128B swizzle), then 128 rows of 32 bytes of B (32B swizzle).
#include <cuda_bf16.h>

#include <type_traits>

#include "common/cluster.cuh"
#include "common/tma.cuh"

constexpr int BLOCK_N = 128, PANEL = 32;
constexpr int A_BYTES = Variant::BLOCK_M * 128, B_BYTES = BLOCK_N * PANEL;
static_assert(A_BYTES % 1024 == 0, "B must start where its swizzle pattern starts");
static_assert(Variant::THREADS == BLOCK_N, "a thread owns a column");
namespace zoo {
constexpr int DYNAMIC_SHARED_BYTES = A_BYTES + B_BYTES;
}  // namespace zoo

using Output = std::conditional_t<std::is_same_v<Variant::d, zoo::bf16>, __nv_bfloat16, float>;

extern "C" __global__ void __launch_bounds__(Variant::THREADS) ZOO_KERNEL(ZOO_PARAMETERS) {
    extern __shared__ __align__(1024) unsigned char buffer[];
    __shared__ uint64_t full;
    __shared__ int block;
    unsigned char* tile_a = buffer;
    unsigned char* tile_b = buffer + A_BYTES;

    if (threadIdx.x == 0) {
        zoo::barrier_init(&full);
        block = blockIdx.x;
    }
    __syncthreads();
    zoo::cluster_barrier();
    const int last = zoo::load_from_rank(&block, zoo::cluster_size() - 1);
    zoo::cluster_barrier();  // nobody leaves while its shared memory is read

    const int n_tiles = (N + BLOCK_N - 1) / BLOCK_N;
    const int tiles = (M + Variant::BLOCK_M - 1) / Variant::BLOCK_M * n_tiles;
    uint32_t parity = 0;
    for (int tile = blockIdx.x; tile < tiles; tile += gridDim.x, parity ^= 1) {
        const int m_tile = tile / n_tiles, n0 = tile % n_tiles * BLOCK_N, m0 = m_tile * Variant::BLOCK_M;
        if (threadIdx.x == 0) {
            zoo::barrier_expect(&full, A_BYTES + B_BYTES);
            zoo::load(tile_a, a, &full, n0, m0);
            zoo::load(tile_b, b, &full, 0, m_tile % K_PANELS, n0);
            if (tile < T) who[tile] = blockIdx.x + 65536 * last;
        }
        zoo::barrier_wait(&full, parity);
        const int column = threadIdx.x, n = n0 + column;
        const float added = (bias && n < N ? bias[n] : 0.f) + static_cast<float>(shift);
        for (int row = 0; row < Variant::BLOCK_M && m0 + row < M && n < N; ++row) {
            const float from_a = tile_a[zoo::swizzled<128>(row * 128 + column)];
            const float from_b = tile_b[zoo::swizzled<32>(column * PANEL + (m0 + row) % PANEL)];
            d[(m0 + row) * d_stride + n] = static_cast<Output>(alpha * from_a + from_b + added);
        }
        __syncthreads();  // the tile is read; the next one may overwrite it
    }
}
