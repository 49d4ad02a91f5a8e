// wgmma (sm_90a): four warps multiply 64 x 32 by 32 x N elements of e4m3 from shared memory into registers, asynchronously.
//
// Both operands are named by 64-bit descriptors of tiles whose rows are 128 bytes of K, as a tensor copy with the 128-byte
// swizzle leaves them. Lane l of warp w holds, in register j, row 16 w + l / 4 + 8 (j / 2 % 2), column 8 (j / 4) +
// 2 (l % 4) + j % 2:
//
//        columns  0 1   2 3   4 5   6 7  |  8 9 ...
//   row 16 w       l0    l1    l2    l3  |              registers 0, 1, then 4, 5 for columns 8 to 15, and so on
//   row 16 w + 1   l4    l5    l6    l7  |
//      ...
//   row 16 w + 8   l0    l1    l2    l3  |              registers 2, 3
//
// The sum of one instruction keeps 13 bits of fraction, those of its result included: docs/emulator_arithmetic.md.
#pragma once

#include <cstdint>

#include "common/mbarrier.cuh"

namespace zoo {

constexpr int WGMMA_ROWS = 64, WGMMA_DEPTH = 32, WARPGROUP = 128;

// Which warpgroup this is, in a register that the compiler knows to be the same for the whole warp.
__device__ __forceinline__ int warpgroup_index() { return __shfl_sync(0xFFFFFFFF, threadIdx.x / WARPGROUP, 0); }

// Of a tile with rows of 128 swizzled bytes: bits 0-13 its address / 16, 32-45 the 1024 bytes from 8 rows to the next 8,
// 62 the 128-byte swizzle. 32 further along K is 32 bytes, so + 2; 8 rows further down + 64.
__device__ __forceinline__ uint64_t matrix_descriptor(const void* tile) {
    return (shared_address(tile) & 0x3FFFF) >> 4 | uint64_t(1024 >> 4) << 32 | uint64_t(1) << 62;
}

// Before the first multiplication, and after anything else touched the registers of a sum.
__device__ __forceinline__ void fence_registers() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }

// Closes a group of multiplications.
__device__ __forceinline__ void commit_multiplications() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }

// Until all but the newest PENDING groups are over; their registers may be used, their tiles overwritten.
template <int PENDING>
__device__ __forceinline__ void wait_for_multiplications() {
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(PENDING) : "memory");
}

// The compiler does not know that a multiplication writes its registers late: no use of them may move across this.
template <int COUNT>
__device__ __forceinline__ void hold(float (&d)[COUNT]) {
#pragma unroll
    for (int i = 0; i < COUNT; i++) asm volatile("" : "+f"(d[i])::"memory");
}

// Where register j of this thread lies in the warpgroup's 64 x N.
__device__ __forceinline__ int accumulator_row(int j, int thread = threadIdx.x) {
    return thread % WARPGROUP / 32 * 16 + thread % 32 / 4 + j / 2 % 2 * 8;
}
__device__ __forceinline__ int accumulator_column(int j, int thread = threadIdx.x) { return j / 4 * 8 + thread % 4 * 2 + j % 2; }

// threadIdx.x, read anew: what follows from it is not kept in registers over a loop that needs them all.
__device__ __forceinline__ int thread_index_anew() {
    int thread;
    asm volatile("mov.u32 %0, %%tid.x;" : "=r"(thread));
    return thread;
}

// d (64 x N) += a (64 x 32) b (N x 32)^T, or = where nothing is to be accumulated. There is no other way to write an
// instruction with N / 2 registers than to write them all.
template <int N>
__device__ __forceinline__ void multiply(float (&d)[N / 2], uint64_t a, uint64_t b, bool accumulate);

template <>
__device__ __forceinline__ void multiply<8>(float (&d)[4], uint64_t a, uint64_t b, bool accumulate) {
    asm volatile(
        "{\n\t"
        ".reg .pred accumulate;\n\t"
        "setp.ne.b32 accumulate, %6, 0;\n\t"
        "wgmma.mma_async.sync.aligned.m64n8k32.f32.e4m3.e4m3 {"
        "%0, %1, %2, %3}, "
        "%4, %5, accumulate, 1, 1;\n\t"
        "}"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "l"(a), "l"(b), "r"(static_cast<uint32_t>(accumulate)));
}

template <>
__device__ __forceinline__ void multiply<16>(float (&d)[8], uint64_t a, uint64_t b, bool accumulate) {
    asm volatile(
        "{\n\t"
        ".reg .pred accumulate;\n\t"
        "setp.ne.b32 accumulate, %10, 0;\n\t"
        "wgmma.mma_async.sync.aligned.m64n16k32.f32.e4m3.e4m3 {"
        "%0, %1, %2, %3, %4, %5, %6, %7}, "
        "%8, %9, accumulate, 1, 1;\n\t"
        "}"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7])
        : "l"(a), "l"(b), "r"(static_cast<uint32_t>(accumulate)));
}

template <>
__device__ __forceinline__ void multiply<32>(float (&d)[16], uint64_t a, uint64_t b, bool accumulate) {
    asm volatile(
        "{\n\t"
        ".reg .pred accumulate;\n\t"
        "setp.ne.b32 accumulate, %18, 0;\n\t"
        "wgmma.mma_async.sync.aligned.m64n32k32.f32.e4m3.e4m3 {"
        "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15}, "
        "%16, %17, accumulate, 1, 1;\n\t"
        "}"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]), "+f"(d[8]), "+f"(d[9]),
          "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15])
        : "l"(a), "l"(b), "r"(static_cast<uint32_t>(accumulate)));
}

template <>
__device__ __forceinline__ void multiply<64>(float (&d)[32], uint64_t a, uint64_t b, bool accumulate) {
    asm volatile(
        "{\n\t"
        ".reg .pred accumulate;\n\t"
        "setp.ne.b32 accumulate, %34, 0;\n\t"
        "wgmma.mma_async.sync.aligned.m64n64k32.f32.e4m3.e4m3 {"
        "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, "
        "%24, %25, %26, %27, %28, %29, %30, %31}, "
        "%32, %33, accumulate, 1, 1;\n\t"
        "}"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]), "+f"(d[8]), "+f"(d[9]),
          "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15]), "+f"(d[16]), "+f"(d[17]), "+f"(d[18]),
          "+f"(d[19]), "+f"(d[20]), "+f"(d[21]), "+f"(d[22]), "+f"(d[23]), "+f"(d[24]), "+f"(d[25]), "+f"(d[26]), "+f"(d[27]),
          "+f"(d[28]), "+f"(d[29]), "+f"(d[30]), "+f"(d[31])
        : "l"(a), "l"(b), "r"(static_cast<uint32_t>(accumulate)));
}

template <>
__device__ __forceinline__ void multiply<128>(float (&d)[64], uint64_t a, uint64_t b, bool accumulate) {
    asm volatile(
        "{\n\t"
        ".reg .pred accumulate;\n\t"
        "setp.ne.b32 accumulate, %66, 0;\n\t"
        "wgmma.mma_async.sync.aligned.m64n128k32.f32.e4m3.e4m3 {"
        "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, "
        "%24, %25, %26, %27, %28, %29, %30, %31, %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "
        "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63}, "
        "%64, %65, accumulate, 1, 1;\n\t"
        "}"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]), "+f"(d[8]), "+f"(d[9]),
          "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15]), "+f"(d[16]), "+f"(d[17]), "+f"(d[18]),
          "+f"(d[19]), "+f"(d[20]), "+f"(d[21]), "+f"(d[22]), "+f"(d[23]), "+f"(d[24]), "+f"(d[25]), "+f"(d[26]), "+f"(d[27]),
          "+f"(d[28]), "+f"(d[29]), "+f"(d[30]), "+f"(d[31]), "+f"(d[32]), "+f"(d[33]), "+f"(d[34]), "+f"(d[35]), "+f"(d[36]),
          "+f"(d[37]), "+f"(d[38]), "+f"(d[39]), "+f"(d[40]), "+f"(d[41]), "+f"(d[42]), "+f"(d[43]), "+f"(d[44]), "+f"(d[45]),
          "+f"(d[46]), "+f"(d[47]), "+f"(d[48]), "+f"(d[49]), "+f"(d[50]), "+f"(d[51]), "+f"(d[52]), "+f"(d[53]), "+f"(d[54]),
          "+f"(d[55]), "+f"(d[56]), "+f"(d[57]), "+f"(d[58]), "+f"(d[59]), "+f"(d[60]), "+f"(d[61]), "+f"(d[62]), "+f"(d[63])
        : "l"(a), "l"(b), "r"(static_cast<uint32_t>(accumulate)));
}

template <>
__device__ __forceinline__ void multiply<144>(float (&d)[72], uint64_t a, uint64_t b, bool accumulate) {
    asm volatile(
        "{\n\t"
        ".reg .pred accumulate;\n\t"
        "setp.ne.b32 accumulate, %74, 0;\n\t"
        "wgmma.mma_async.sync.aligned.m64n144k32.f32.e4m3.e4m3 {"
        "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, %24, "
        "%25, %26, %27, %28, %29, %30, %31, %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "
        "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63, %64, %65, %66, %67, %68, %69, %70, "
        "%71}, "
        "%72, %73, accumulate, 1, 1;\n\t"
        "}"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]), "+f"(d[8]), "+f"(d[9]),
          "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15]), "+f"(d[16]), "+f"(d[17]), "+f"(d[18]),
          "+f"(d[19]), "+f"(d[20]), "+f"(d[21]), "+f"(d[22]), "+f"(d[23]), "+f"(d[24]), "+f"(d[25]), "+f"(d[26]), "+f"(d[27]),
          "+f"(d[28]), "+f"(d[29]), "+f"(d[30]), "+f"(d[31]), "+f"(d[32]), "+f"(d[33]), "+f"(d[34]), "+f"(d[35]), "+f"(d[36]),
          "+f"(d[37]), "+f"(d[38]), "+f"(d[39]), "+f"(d[40]), "+f"(d[41]), "+f"(d[42]), "+f"(d[43]), "+f"(d[44]), "+f"(d[45]),
          "+f"(d[46]), "+f"(d[47]), "+f"(d[48]), "+f"(d[49]), "+f"(d[50]), "+f"(d[51]), "+f"(d[52]), "+f"(d[53]), "+f"(d[54]),
          "+f"(d[55]), "+f"(d[56]), "+f"(d[57]), "+f"(d[58]), "+f"(d[59]), "+f"(d[60]), "+f"(d[61]), "+f"(d[62]), "+f"(d[63]),
          "+f"(d[64]), "+f"(d[65]), "+f"(d[66]), "+f"(d[67]), "+f"(d[68]), "+f"(d[69]), "+f"(d[70]), "+f"(d[71])
        : "l"(a), "l"(b), "r"(static_cast<uint32_t>(accumulate)));
}

}  // namespace zoo
