// wgmma (sm_90a): D(64 x N, registers of four warps) += A(64 x K) * B(N x K)^T, asynchronously.
//
// B always comes from shared memory, A from shared memory or from registers. Shared operands are named by a 64-bit descriptor.
// Where an accumulator lives: lane l of warp w, register j holds row 16w + l/4 + 8*((j/2)%2), column 8*(j/4) + 2*(l%4) + j%2.
//
//        columns 0 1  2 3  4 5  6 7 | 8 ...
//   row 16w+0   l0   l1   l2   l3   |          registers 0,1   (then 4,5 for columns 8..15, and so on)
//   row 16w+1   l4   l5   l6   l7   |
//      ...
//   row 16w+8   l0   l1   l2   l3   |          registers 2,3
#pragma once
#include <cstdint>
#include "address.cuh"

namespace wgmma {

enum class Swizzle : uint64_t { none = 0, bytes_128 = 1, bytes_64 = 2, bytes_32 = 3 };

// Bits 0-13 start address / 16, 16-29 leading byte offset / 16, 32-45 stride byte offset / 16, 62-63 swizzle.
//  K-major, swizzled w:  row r at (r/8)*stride + (r%8)*w; leading is not used.
//  MN-major, 128B:       64 elements of M or N, then the next 64 at +leading; 8 values of K, then the next 8 at +stride.
__device__ __forceinline__ uint64_t descriptor(const void* start, uint32_t leading_bytes, uint32_t stride_bytes,
                                               Swizzle swizzle) {
    return static_cast<uint64_t>((address::shared(start) & 0x3ffff) >> 4) | (static_cast<uint64_t>(leading_bytes >> 4) << 16) |
           (static_cast<uint64_t>(stride_bytes >> 4) << 32) | (static_cast<uint64_t>(swizzle) << 62);
}

// A tile whose rows are 128 bytes of K, as TMA writes it with the 128-byte swizzle: 8 rows are 1024 bytes.
__device__ __forceinline__ uint64_t k_major_128b(const void* start) { return descriptor(start, 16, 1024, Swizzle::bytes_128); }

// Before the first mma and after the registers were touched by anything else.
__device__ __forceinline__ void fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }

__device__ __forceinline__ void commit_group() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }

template <int PENDING>
__device__ __forceinline__ void wait_group() {
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(PENDING) : "memory");
}

// The compiler must not move uses of the accumulators across the wait: it does not know that the mma writes them late.
template <int COUNT>
__device__ __forceinline__ void hold(float (&d)[COUNT]) {
#pragma unroll
    for (int i = 0; i < COUNT; i++) asm volatile("" : "+f"(d[i])::"memory");
}

// The same for A in registers: written before the fence, not after.
template <int COUNT>
__device__ __forceinline__ void hold(uint32_t (&a)[COUNT]) {
#pragma unroll
    for (int i = 0; i < COUNT; i++) asm volatile("" : "+r"(a[i])::"memory");
}

// e4m3 x e4m3 -> f32, 64 x 64 x 32. With accumulate false, D = A * B.
__device__ __forceinline__ void m64n64k32_e4m3(float (&d)[32], uint64_t a, uint64_t b, bool accumulate) {
    asm volatile(
        "{\n\t"
        ".reg .pred accumulate;\n\t"
        "setp.ne.b32 accumulate, %34, 0;\n\t"
        "wgmma.mma_async.sync.aligned.m64n64k32.f32.e4m3.e4m3 "
        "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
        "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, "
        "%32, %33, accumulate, 1, 1;\n\t"
        "}"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]), "+f"(d[8]), "+f"(d[9]),
          "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15]), "+f"(d[16]), "+f"(d[17]), "+f"(d[18]),
          "+f"(d[19]), "+f"(d[20]), "+f"(d[21]), "+f"(d[22]), "+f"(d[23]), "+f"(d[24]), "+f"(d[25]), "+f"(d[26]), "+f"(d[27]),
          "+f"(d[28]), "+f"(d[29]), "+f"(d[30]), "+f"(d[31])
        : "l"(a), "l"(b), "r"(static_cast<uint32_t>(accumulate)));
}

// bf16 x bf16 -> f32, 64 x 64 x 16. TRANSPOSE_x = 1: the operand is MN-major (K is not the contiguous dimension).
template <int TRANSPOSE_A, int TRANSPOSE_B>
__device__ __forceinline__ void m64n64k16_bf16(float (&d)[32], uint64_t a, uint64_t b, bool accumulate) {
    asm volatile(
        "{\n\t"
        ".reg .pred accumulate;\n\t"
        "setp.ne.b32 accumulate, %34, 0;\n\t"
        "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 "
        "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
        "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, "
        "%32, %33, accumulate, 1, 1, %35, %36;\n\t"
        "}"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]), "+f"(d[8]), "+f"(d[9]),
          "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15]), "+f"(d[16]), "+f"(d[17]), "+f"(d[18]),
          "+f"(d[19]), "+f"(d[20]), "+f"(d[21]), "+f"(d[22]), "+f"(d[23]), "+f"(d[24]), "+f"(d[25]), "+f"(d[26]), "+f"(d[27]),
          "+f"(d[28]), "+f"(d[29]), "+f"(d[30]), "+f"(d[31])
        : "l"(a), "l"(b), "r"(static_cast<uint32_t>(accumulate)), "n"(TRANSPOSE_A), "n"(TRANSPOSE_B));
}

// The same with A (K-major by nature) in registers: lane l of warp w, element i of 8 holds row 16w + l/4 + 8*((i/2)%2),
// k = 2*(l%4) + i%2 + 8*(i/4); two elements per register, the lower k in the low half.
template <int TRANSPOSE_B>
__device__ __forceinline__ void m64n64k16_bf16_registers(float (&d)[32], const uint32_t (&a)[4], uint64_t b, bool accumulate) {
    asm volatile(
        "{\n\t"
        ".reg .pred accumulate;\n\t"
        "setp.ne.b32 accumulate, %37, 0;\n\t"
        "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 "
        "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
        "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, "
        "{%32, %33, %34, %35}, %36, accumulate, 1, 1, %38;\n\t"
        "}"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]), "+f"(d[8]), "+f"(d[9]),
          "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15]), "+f"(d[16]), "+f"(d[17]), "+f"(d[18]),
          "+f"(d[19]), "+f"(d[20]), "+f"(d[21]), "+f"(d[22]), "+f"(d[23]), "+f"(d[24]), "+f"(d[25]), "+f"(d[26]), "+f"(d[27]),
          "+f"(d[28]), "+f"(d[29]), "+f"(d[30]), "+f"(d[31])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(static_cast<uint32_t>(accumulate)), "n"(TRANSPOSE_B));
}

// Row and column of accumulator j of this thread inside the warpgroup's 64 x N tile (the picture at the top).
__device__ __forceinline__ int accumulator_row(int j) {
    return 16 * ((threadIdx.x / 32) % 4) + (threadIdx.x % 32) / 4 + 8 * ((j / 2) % 2);
}
__device__ __forceinline__ int accumulator_column(int j) { return 8 * (j / 4) + 2 * (threadIdx.x % 4) + j % 2; }

}  // namespace wgmma
