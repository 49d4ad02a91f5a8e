// Not a GEMM: a kernel with a result that is easy to check, started the way a masked grouped GEMM is.
//
// For each group g and row m < min(masked_m[g], max_m), each byte j of a row (two 4-bit codes):
//
//     D[g, m, j] = A[g, m, j] ^ scale(g, m, j / 16)                  (16 bytes = 32 codes share a scale)
//     plain:   scale(g, m, c) = a_scale[g, m, c]
//     blocked: scale(g, m, c) = a_scale[g, m / 128, c / 4, m % 32, 4 * (m / 32 % 4) + c % 4]
//
// Other rows of D stay as they are. CTA (i, g) owns the 32 rows from 32 * i on; with `valid` of them below masked_m,
//
//     workspace[g * gridDim.x + i] = valid + tag
//
// and CTA (0, g) writes counts[g] = clamp(masked_m[g], 0, max_m), if counts is given. Nothing is read or written
// before the previous kernel of the stream has ended.
//
// Shared memory: 32 rows of 64 bytes of A (64B swizzle), and one block of 32 x 16 scales.
#include "common/tma.cuh"

constexpr int ROW_BYTES = 64;
constexpr bool BLOCKED = Variant::layout == zoo::Layout::blocked;
static_assert(Variant::THREADS == ROW_BYTES, "a thread owns a byte of the row");
static_assert(Variant::ROWS == 32, "the rows of one quarter of a block of scales");

// blocked: the block of 32 x 16 scales of this tile comes with it
__device__ inline void load_scales(unsigned char* to, const zoo::TensorMap& map, uint64_t* full, long long j0, long long m0,
                                   long long group) {
    zoo::load(to, map, full, 0, 0, static_cast<int>(j0 / ROW_BYTES), static_cast<int>(m0 / 128), static_cast<int>(group));
}
__device__ inline unsigned char scale_at(const unsigned char* loaded, const zoo::TensorMap&, long long, long long m, long long j,
                                         long long) {
    return loaded[m % 32 * 16 + 4 * (m / 32 % 4) + j / 16 % 4];
}

// plain: each is read where it lies
__device__ inline void load_scales(unsigned char*, const unsigned char*, uint64_t*, long long, long long, long long) {}
__device__ inline unsigned char scale_at(const unsigned char*, const unsigned char* scales, long long row, long long, long long j,
                                         long long k_bytes) {
    return scales[row * (k_bytes / 16) + j / 16];
}

extern "C" __global__ void __launch_bounds__(Variant::THREADS) ZOO_KERNEL(ZOO_PARAMETERS) {
    __shared__ __align__(1024) unsigned char tile[Variant::ROWS * ROW_BYTES];
    __shared__ __align__(128) unsigned char scales[BLOCKED ? 512 : 16];
    __shared__ uint64_t full;

    asm volatile("griddepcontrol.wait;" ::: "memory");
    const long long group = blockIdx.y, m0 = static_cast<long long>(blockIdx.x) * Variant::ROWS;
    const int64_t masked = min(max(int64_t(masked_m[group]), int64_t(0)), max_m);
    const int valid = static_cast<int>(min(max(static_cast<long long>(masked) - m0, 0ll), static_cast<long long>(Variant::ROWS)));
    if (threadIdx.x == 0) {
        zoo::barrier_init(&full);
        workspace[group * gridDim.x + blockIdx.x] = valid + tag;
        if (counts && blockIdx.x == 0) counts[group] = static_cast<int>(masked);
    }
    __syncthreads();

    uint32_t parity = 0;
    for (long long j0 = 0; j0 < K_bytes && valid > 0; j0 += ROW_BYTES, parity ^= 1) {
        if (threadIdx.x == 0) {
            zoo::barrier_expect(&full, Variant::ROWS * ROW_BYTES + (BLOCKED ? 512 : 0));
            zoo::load(tile, a, &full, static_cast<int>(Variant::ELEMENTS_A_BYTE * j0), static_cast<int>(m0),
                      static_cast<int>(group));
            load_scales(scales, a_scale, &full, j0, m0, group);
        }
        zoo::barrier_wait(&full, parity);
        const long long j = j0 + threadIdx.x;
        for (int row = 0; row < valid && j < K_bytes; ++row) {
            const long long m = m0 + row;
            const unsigned char scale = scale_at(scales, a_scale, group * max_m + m, m, j, K_bytes);
            d[(group * max_m + m) * K_bytes + j] = tile[zoo::swizzled<64>(row * ROW_BYTES + threadIdx.x)] ^ scale;
        }
        __syncthreads();  // the tile is read; the next one may overwrite it
    }
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
}
