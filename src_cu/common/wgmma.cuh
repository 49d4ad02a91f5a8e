// wgmma (sm_90a): a warpgroup multiplies 64 x 32 by 32 x N elements of e4m3 from shared memory into registers, asynchronously.
//
// 64-bit descriptors name both operands: tiles whose rows are 128 bytes of K, as TMA writes them with the 128-byte swizzle. Register j of
// lane l of warp w holds row 16 w + l / 4 + 8 (j / 2 % 2), column 8 (j / 4) + 2 (l % 4) + j % 2 of the accumulator:
//
//        columns  0 1   2 3   4 5   6 7  |  8 9 ...
//   row 16 w       l0    l1    l2    l3  |              registers 0, 1, then 4, 5 for columns 8 to 15, and so on
//   row 16 w + 1   l4    l5    l6    l7  |
//      ...
//   row 16 w + 8   l0    l1    l2    l3  |              registers 2, 3
//
// The sum of one instruction, including the accumulator, keeps 13 bits of fraction: docs/emulator.md.
#pragma once

#include <cstdint>

#include "common/mbarrier.cuh"
#include "common/warp.cuh"
#include "common/wgmma_sums.cuh"

namespace zoo {

constexpr int WGMMA_ROWS = 64, WGMMA_DEPTH = 32, WARPGROUP = 128;

__device__ __forceinline__ int warp_index() { return same_in_all_lanes(threadIdx.x / 32); }
__device__ __forceinline__ int warpgroup_index() { return same_in_all_lanes(threadIdx.x / WARPGROUP); }

// Descriptor of a tile with swizzled rows of 128 bytes. Bits 0-13: address / 16. Bits 32-45: 1024 / 16, the step from 8 rows to the next 8.
// Bit 62: 128-byte swizzle. Adding 2 moves by 32 bytes along K, adding 64 by 8 rows.
__device__ __forceinline__ uint64_t matrix_descriptor(const void* tile) {
    return (shared_address(tile) & 0x3FFFF) >> 4 | uint64_t(1024 >> 4) << 32 | uint64_t(1) << 62;
}

// Called before the first multiplication, and after other instructions accessed the accumulator.
__device__ __forceinline__ void fence_registers() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }

// Closes a group of multiplications, for wait_for_multiplications().
__device__ __forceinline__ void commit_multiplications() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }

// Waits until all but the newest PENDING groups have ended. Then their registers may be used and their tiles overwritten.
template <int PENDING>
__device__ __forceinline__ void wait_for_multiplications() {
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(PENDING) : "memory");
}

// The compiler does not know that a multiplication writes its registers late. It does not move uses of `d` across this call.
template <int COUNT>
__device__ __forceinline__ void hold(float (&d)[COUNT]) {
#pragma unroll
    for (int i = 0; i < COUNT; i++) asm volatile("" : "+f"(d[i])::"memory");
}

// Row and column of accumulator register j in the warpgroup's 64 x N.
__device__ __forceinline__ int accumulator_row(int j, int thread = threadIdx.x) {
    return thread % WARPGROUP / 32 * 16 + thread % 32 / 4 + j / 2 % 2 * 8;
}
__device__ __forceinline__ int accumulator_column(int j, int thread = threadIdx.x) { return j / 4 * 8 + thread % 4 * 2 + j % 2; }

// threadIdx.x, read again: the compiler then keeps nothing computed from it in registers across a loop that needs all registers.
__device__ __forceinline__ int reread_thread_index() {
    int thread;
    asm volatile("mov.u32 %0, %%tid.x;" : "=r"(thread));
    return thread;
}

// d (64 x N) += a (64 x 32) b (N x 32)^T, or = without `accumulate`.
template <int N>
    requires(N % 8 == 0 && N <= 256)
__device__ __forceinline__ void multiply(float (&d)[N / 2], uint64_t a, uint64_t b, bool accumulate);

#define ZOO_MULTIPLY(N, A, B, ACCUMULATE, ...)                                                                              \
    template <>                                                                                                             \
    __device__ __forceinline__ void multiply<N>(float (&d)[N / 2], uint64_t a, uint64_t b, bool accumulate) {               \
        asm volatile(                                                                                                       \
            "{\n\t"                                                                                                         \
            ".reg .pred accumulate;\n\t"                                                                                    \
            "setp.ne.b32 accumulate, %" #ACCUMULATE ", 0;\n\t"                                                              \
            "wgmma.mma_async.sync.aligned.m64n" #N "k32.f32.e4m3.e4m3 {" ZOO_SUMS_##N(ZOO_NUMBERS_OF, ZOO_AND) "}, "        \
            "%" #A ", %" #B ", accumulate, 1, 1;\n\t"                                                                       \
            "}"                                                                                                             \
            : ZOO_SUMS_##N(ZOO_OPERANDS_OF, ZOO_COMMA)                                                                      \
            : "l"(a), "l"(b), "r"(static_cast<uint32_t>(accumulate)));                                                      \
    }
ZOO_FOR_EVERY_WIDTH(ZOO_MULTIPLY)
#undef ZOO_MULTIPLY

}  // namespace zoo
