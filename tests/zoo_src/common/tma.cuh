// One bulk tensor load at a time: a barrier, a load for each rank, and where a swizzle puts a byte.
#pragma once

#include <cstdint>

namespace zoo {

// Opaque to the kernel: the driver's 128 bytes, in the parameter block.
struct alignas(64) TensorMap {
    unsigned char bytes[128];
};

__device__ inline uint32_t shared_address(const void* pointer) {
    return static_cast<uint32_t>(__cvta_generic_to_shared(pointer));
}

// One thread arrives; the rest of the count is bytes.
__device__ inline void barrier_init(uint64_t* barrier) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(shared_address(barrier)) : "memory");
    // the initialised barrier must be seen by the TMA unit, which writes through the async proxy
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

__device__ inline void barrier_expect(uint64_t* barrier, uint32_t bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(barrier)), "r"(bytes) : "memory");
}

__device__ inline void barrier_wait(uint64_t* barrier, uint32_t parity) {
    asm volatile(
        "{\n"
        ".reg .pred done;\n"
        "again:\n"
        "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
        "@!done bra again;\n"
        "}\n" ::"r"(shared_address(barrier)),
        "r"(parity)
        : "memory");
}

__device__ inline void load(void* to, const TensorMap& map, uint64_t* barrier, int x0) {
    asm volatile("cp.async.bulk.tensor.1d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%3}], [%2];" ::"r"(
                     shared_address(to)),
                 "l"(&map), "r"(shared_address(barrier)), "r"(x0)
                 : "memory");
}

__device__ inline void load(void* to, const TensorMap& map, uint64_t* barrier, int x0, int x1) {
    asm volatile(
        "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4}], [%2];" ::"r"(
            shared_address(to)),
        "l"(&map), "r"(shared_address(barrier)), "r"(x0), "r"(x1)
        : "memory");
}

__device__ inline void load(void* to, const TensorMap& map, uint64_t* barrier, int x0, int x1, int x2) {
    asm volatile(
        "cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4, %5}], [%2];" ::"r"(
            shared_address(to)),
        "l"(&map), "r"(shared_address(barrier)), "r"(x0), "r"(x1), "r"(x2)
        : "memory");
}

__device__ inline void load(void* to, const TensorMap& map, uint64_t* barrier, int x0, int x1, int x2, int x3, int x4) {
    asm volatile(
        "cp.async.bulk.tensor.5d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4, %5, %6, %7}], [%2];" ::
            "r"(shared_address(to)),
        "l"(&map), "r"(shared_address(barrier)), "r"(x0), "r"(x1), "r"(x2), "r"(x3), "r"(x4)
        : "memory");
}

// Where byte `offset` of a box lies: the 16-byte chunk's number is XORed with the number of the 128-byte line, modulo
// the chunks of a span (8, 4 or 2). Needs a buffer aligned to 8 spans: 1024 bytes are always enough.
template <int span_bytes>
__device__ inline int swizzled(int offset) {
    static_assert(span_bytes == 32 || span_bytes == 64 || span_bytes == 128);
    return offset ^ ((offset >> 7 & (span_bytes / 16 - 1)) << 4);
}

}  // namespace zoo
