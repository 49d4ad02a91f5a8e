// Consumer Blackwell (sm_120): block-scaled mma.sync, one warp, everything in registers. D (f32, M x N) = (A scales) (B scales)^T.
//
//   entry                 A, B          scales               instruction          bytes of K per instruction
//   mma_sync_mxf8f6f4     e4m3 x e4m3   ue8m0 per 32         m16n8k32, 1X         32
//   mma_sync_mxf4         e2m1 x e2m1   ue8m0 per 32         m16n8k64, 2X         32
//   mma_sync_mxf4nvf4     e2m1 x e2m1   ue4m3 per 16         m16n8k64, 4X         32
//
// One warp computes 16 x 8. Lane l: quad = l/4 (0..7), place = l%4.
//
//    A, 4 registers of 4 bytes:  row quad or quad+8, bytes 4*place or 4*place+16     B, 2 registers: column quad, bytes 4*place (+16)
//         bytes 0..15  16..31
//        +-----------+-----------+
//        |    a0     |    a2     |  rows 0..7
//        +-----------+-----------+                 D, 4 registers: rows quad, quad+8; columns 2*place, 2*place+1
//        |    a1     |    a3     |  rows 8..15
//        +-----------+-----------+
//
//    Scales: a register of 4 bytes, of which byte-id chooses. Of A: with thread-id 0, place 0 gives the scales of row quad, place 1 those of
//    row quad+8. Of B: the lane whose place is thread-id gives the scales of column quad.
//
// Scales are plain row-major here: one 32-bit word holds 4 scales of one row.
#include <cstdint>
#include <type_traits>

constexpr int TILE_M = 16, TILE_N = 8, K_BYTES = 32;

enum class Kind { mxf8f6f4, mxf4, mxf4nvf4 };

// SCALE_BYTE: the first byte of the scale words that this instruction uses.
template <Kind KIND, int SCALE_BYTE>
__device__ __forceinline__ void mma(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2], uint32_t scales_a,
                                    uint32_t scales_b) {
    if constexpr (KIND == Kind::mxf8f6f4)
        asm volatile(
            "mma.sync.aligned.m16n8k32.row.col.kind::mxf8f6f4.block_scale.scale_vec::1X.f32.e4m3.e4m3.f32.ue8m0 "
            "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3}, {%10}, {%12, 0}, {%11}, {%12, 0};"
            : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
            : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]), "r"(scales_a), "r"(scales_b), "n"(SCALE_BYTE));
    else if constexpr (KIND == Kind::mxf4)
        asm volatile(
            "mma.sync.aligned.m16n8k64.row.col.kind::mxf4.block_scale.scale_vec::2X.f32.e2m1.e2m1.f32.ue8m0 "
            "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3}, {%10}, {%12, 0}, {%11}, {%12, 0};"
            : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
            : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]), "r"(scales_a), "r"(scales_b), "n"(SCALE_BYTE));
    else
        asm volatile(
            "mma.sync.aligned.m16n8k64.row.col.kind::mxf4nvf4.block_scale.scale_vec::4X.f32.e2m1.e2m1.f32.ue4m3 "
            "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3}, {%10}, {%12, 0}, {%11}, {%12, 0};"
            : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
            : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]), "r"(scales_a), "r"(scales_b), "n"(SCALE_BYTE));
}

// m a multiple of 16, n of 8; row_bytes = bytes of K per row, a multiple of one scale word's worth.
template <Kind KIND>
__device__ __forceinline__ void gemm(const uint8_t* a, const uint32_t* scales_a, const uint8_t* b, const uint32_t* scales_b,
                                     float* d, int n, int row_bytes) {
    constexpr int SCALES = KIND == Kind::mxf8f6f4 ? 1 : KIND == Kind::mxf4 ? 2 : 4;  // per instruction
    constexpr int INSTRUCTIONS = 4 / SCALES;                                         // per scale word
    static_assert(SCALES * INSTRUCTIONS == 4, "one scale word");
    const int quad = threadIdx.x / 4, place = threadIdx.x % 4;
    const int row = blockIdx.y * TILE_M, column = blockIdx.x * TILE_N;
    const int words = row_bytes / (K_BYTES * INSTRUCTIONS);

    auto load = [&](const uint8_t* matrix, int r, int byte) {
        return *reinterpret_cast<const uint32_t*>(matrix + static_cast<size_t>(r) * row_bytes + byte + 4 * place);
    };
    float accumulator[4] = {};
    for (int word = 0; word < words; word++) {
        // Only the lanes that are looked at hold scales.
        const uint32_t word_a = place < 2 ? scales_a[(row + quad + 8 * place) * words + word] : 0;
        const uint32_t word_b = place == 0 ? scales_b[(column + quad) * words + word] : 0;
        auto step = [&](auto instruction) {
            constexpr int I = decltype(instruction)::value;
            const int byte = (word * INSTRUCTIONS + I) * K_BYTES;
            const uint32_t a_values[4] = {load(a, row + quad, byte), load(a, row + quad + 8, byte),
                                          load(a, row + quad, byte + 16), load(a, row + quad + 8, byte + 16)};
            const uint32_t b_values[2] = {load(b, column + quad, byte), load(b, column + quad, byte + 16)};
            mma<KIND, I * SCALES>(accumulator, a_values, b_values, word_a, word_b);
        };
        step(std::integral_constant<int, 0>{});
        if constexpr (INSTRUCTIONS > 1) step(std::integral_constant<int, 1>{});
        if constexpr (INSTRUCTIONS > 2) step(std::integral_constant<int, 2>{});
        if constexpr (INSTRUCTIONS > 3) step(std::integral_constant<int, 3>{});
    }
#pragma unroll
    for (int half = 0; half < 2; half++)
        *reinterpret_cast<float2*>(&d[static_cast<size_t>(row + quad + 8 * half) * n + column + 2 * place]) = {
            accumulator[2 * half], accumulator[2 * half + 1]};
}

extern "C" __global__ void __launch_bounds__(32) mma_sync_mxf8f6f4(const uint8_t* a, const uint32_t* scales_a, const uint8_t* b,
                                                                   const uint32_t* scales_b, float* d, int n, int row_bytes) {
    gemm<Kind::mxf8f6f4>(a, scales_a, b, scales_b, d, n, row_bytes);
}
extern "C" __global__ void __launch_bounds__(32) mma_sync_mxf4(const uint8_t* a, const uint32_t* scales_a, const uint8_t* b,
                                                               const uint32_t* scales_b, float* d, int n, int row_bytes) {
    gemm<Kind::mxf4>(a, scales_a, b, scales_b, d, n, row_bytes);
}
extern "C" __global__ void __launch_bounds__(32) mma_sync_mxf4nvf4(const uint8_t* a, const uint32_t* scales_a, const uint8_t* b,
                                                                   const uint32_t* scales_b, float* d, int n, int row_bytes) {
    gemm<Kind::mxf4nvf4>(a, scales_a, b, scales_b, d, n, row_bytes);
}
