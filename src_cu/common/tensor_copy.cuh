// TMA: the copy engine copies boxes of a tensor between global and shared memory. One thread starts a copy; dimension 0 is contiguous.
//
// Elements of a box outside the tensor are loaded as zero. A store skips them, but in dimension 0 only by whole 16 bytes of a row (seen on
// an H200). So a store needs a tensor map whose rows end at a multiple of 16 bytes.
#pragma once

#include <cstdint>

#include "common/mbarrier.cuh"

namespace zoo {

// The 128 opaque bytes that the loader encodes. A kernel parameter is a `const __grid_constant__ TensorMap`.
struct alignas(64) TensorMap {
    uint8_t opaque[128];
};

__device__ __forceinline__ void prefetch(const TensorMap& map) {
    asm volatile("prefetch.tensormap [%0];" ::"l"(&map) : "memory");
}

// The barrier counts the bytes of the whole box, including elements outside the tensor.
__device__ __forceinline__ void load_box(void* target, const TensorMap& map, int32_t c0, int32_t c1, Barrier* barrier) {
    asm volatile(
        "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3}], [%4];" ::"r"(
            shared_address(target)),
        "l"(&map), "r"(c0), "r"(c1), "r"(shared_address(barrier))
        : "memory");
}

// Multicast: every CTA of the cluster whose bit is set in `ranks` gets the box at the address `target` and counts it on its own barrier.
__device__ __forceinline__ void load_box_to_all(void* target, const TensorMap& map, int32_t c0, int32_t c1, Barrier* barrier,
                                                uint16_t ranks) {
    asm volatile(
        "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.multicast::cluster [%0], [%1, {%2, %3}], "
        "[%4], %5;" ::"r"(shared_address(target)),
        "l"(&map), "r"(c0), "r"(c1), "r"(shared_address(barrier)), "h"(ranks)
        : "memory");
}

__device__ __forceinline__ void load_box(void* target, const TensorMap& map, int32_t c0, int32_t c1, int32_t c2, int32_t c3,
                                         Barrier* barrier) {
    asm volatile(
        "cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3, %4, %5}], [%6];" ::
            "r"(shared_address(target)),
        "l"(&map), "r"(c0), "r"(c1), "r"(c2), "r"(c3), "r"(shared_address(barrier))
        : "memory");
}

// Loads contiguous bytes. The barrier counts them. Addresses and `bytes` are multiples of 16.
__device__ __forceinline__ void load_bytes(void* target, const void* source, uint32_t bytes, Barrier* barrier) {
    asm volatile(
        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(shared_address(target)),
        "l"(source), "r"(bytes), "r"(shared_address(barrier))
        : "memory");
}

// One matrix of a three-dimensional tensor: a box does not reach beyond it. MatricesOfMap are all of them; matrix_of() takes one.
struct MatrixOfMap {
    const TensorMap& map;
    int32_t matrix;
};

struct MatricesOfMap {
    const TensorMap& map;
};

__device__ __forceinline__ const TensorMap& matrix_of(const TensorMap& map, int32_t) { return map; }
__device__ __forceinline__ MatrixOfMap matrix_of(const MatricesOfMap& maps, int32_t matrix) { return {maps.map, matrix}; }

__device__ __forceinline__ void load_box(void* target, const MatrixOfMap& from, int32_t c0, int32_t c1, Barrier* barrier) {
    asm volatile(
        "cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3, %4}], [%5];" ::"r"(
            shared_address(target)),
        "l"(&from.map), "r"(c0), "r"(c1), "r"(from.matrix), "r"(shared_address(barrier))
        : "memory");
}

// Prefetches a cache line to L2.
__device__ __forceinline__ void prefetch(const void* address) {
    asm volatile("prefetch.global.L2 [%0];" ::"l"(address) : "memory");
}

// Prefetches a box to L2. Later writes to it stay visible, so this may precede wait_for_previous_kernel(): memory is then busy while the
// previous kernel ends.
__device__ __forceinline__ void prefetch_box(const TensorMap& map, int32_t c0, int32_t c1) {
    asm volatile("cp.async.bulk.prefetch.tensor.2d.L2.global.tile [%0, {%1, %2}];" ::"l"(&map), "r"(c0), "r"(c1) : "memory");
}

__device__ __forceinline__ void prefetch_box(const TensorMap& map, int32_t c0, int32_t c1, int32_t c2, int32_t c3) {
    asm volatile("cp.async.bulk.prefetch.tensor.4d.L2.global.tile [%0, {%1, %2, %3, %4}];" ::"l"(&map), "r"(c0), "r"(c1), "r"(c2),
                 "r"(c3)
                 : "memory");
}

// Called by every thread that wrote to the box in shared memory, before the barrier that precedes store_box().
__device__ __forceinline__ void let_copies_see_shared_memory() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

__device__ __forceinline__ void store_box(const TensorMap& map, const void* source, int32_t c0, int32_t c1) {
    asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group [%0, {%1, %2}], [%3];" ::"l"(&map), "r"(c0), "r"(c1),
                 "r"(shared_address(source))
                 : "memory");
}

__device__ __forceinline__ void store_box(const MatrixOfMap& to, const void* source, int32_t c0, int32_t c1) {
    asm volatile("cp.async.bulk.tensor.3d.global.shared::cta.tile.bulk_group [%0, {%1, %2, %3}], [%4];" ::"l"(&to.map), "r"(c0),
                 "r"(c1), "r"(to.matrix), "r"(shared_address(source))
                 : "memory");
}

// Adds f32 to global memory in the L2 cache. Sums round to nearest even. An H200's L2 keeps subnormal numbers.
__device__ __forceinline__ void add_box(const MatrixOfMap& to, const void* source, int32_t c0, int32_t c1) {
    asm volatile("cp.reduce.async.bulk.tensor.3d.global.shared::cta.add.tile.bulk_group [%0, {%1, %2, %3}], [%4];" ::"l"(&to.map),
                 "r"(c0), "r"(c1), "r"(to.matrix), "r"(shared_address(source))
                 : "memory");
}

// Waits until all stores of this thread have read shared memory. The CTA may not end earlier.
__device__ __forceinline__ void wait_until_stores_have_read() {
    asm volatile("cp.async.bulk.commit_group;" ::: "memory");
    asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");
}

}  // namespace zoo
