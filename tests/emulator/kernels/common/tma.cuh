// TMA: bulk copies between global and shared memory, done by a copy engine on behalf of one thread.
//
// A load signals its bytes on an mbarrier. A store belongs to the issuing thread's bulk group: commit, then wait until the
// sources have been read (the buffer may be reused, the CTA may exit) or until the writes are done.
#pragma once
#include <cstdint>
#include "address.cuh"
#include "mbarrier.cuh"

// The 128 opaque bytes of a CUtensorMap. Passed as `const __grid_constant__ TensorMap`, so that its address is a parameter's.
struct alignas(64) TensorMap {
    uint8_t opaque[128];
};

namespace tma {

using mbarrier::Barrier;

// 1-D: `bytes` (a multiple of 16) from global to this CTA's shared memory; both addresses 16-byte aligned.
__device__ __forceinline__ void load_bytes(void* target, const void* source, uint32_t bytes, Barrier* barrier) {
    asm volatile(
        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(address::shared(target)),
        "l"(source), "r"(bytes), "r"(address::shared(barrier))
        : "memory");
}

__device__ __forceinline__ void store_bytes(void* target, const void* source, uint32_t bytes) {
    asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(target), "r"(address::shared(source)),
                 "r"(bytes)
                 : "memory");
}

// 2-D box of a tensor; coordinate 0 is the innermost (contiguous) dimension. Elements outside the tensor arrive as zero and
// count as bytes: the barrier always gets the size of the whole box.
__device__ __forceinline__ void load_2d(void* target, const TensorMap* map, int32_t c0, int32_t c1, Barrier* barrier) {
    asm volatile(
        "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3}], [%4];" ::"r"(
            address::shared(target)),
        "l"(map), "r"(c0), "r"(c1), "r"(address::shared(barrier))
        : "memory");
}

// The same box into every CTA of the cluster whose bit is set, at the same offset, signalling that CTA's own barrier.
__device__ __forceinline__ void load_2d_multicast(void* target, const TensorMap* map, int32_t c0, int32_t c1, Barrier* barrier,
                                                  uint16_t cta_mask) {
    asm volatile(
        "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.multicast::cluster"
        " [%0], [%1, {%2, %3}], [%4], %5;" ::"r"(address::shared(target)),
        "l"(map), "r"(c0), "r"(c1), "r"(address::shared(barrier)), "h"(cta_mask)
        : "memory");
}

// sm_100: four rows of a tensor, each with its own row index; the map's box is one row high.
__device__ __forceinline__ void load_gather4(void* target, const TensorMap* map, int32_t column, const int32_t (&rows)[4],
                                             Barrier* barrier) {
    asm volatile(
        "cp.async.bulk.tensor.2d.shared::cta.global.tile::gather4.mbarrier::complete_tx::bytes"
        " [%0], [%1, {%2, %3, %4, %5, %6}], [%7];" ::"r"(address::shared(target)),
        "l"(map), "r"(column), "r"(rows[0]), "r"(rows[1]), "r"(rows[2]), "r"(rows[3]), "r"(address::shared(barrier))
        : "memory");
}

// sm_100, CTA pair: the box goes to this CTA, the signal to the barrier of the same name in the pair's CTA `barrier_rank`.
__device__ __forceinline__ void load_2d_pair(void* target, const TensorMap* map, int32_t c0, int32_t c1, Barrier* barrier,
                                             uint32_t barrier_rank) {
    asm volatile(
        "cp.async.bulk.tensor.2d.cta_group::2.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
        " [%0], [%1, {%2, %3}], [%4];" ::"r"(address::shared(target)),
        "l"(map), "r"(c0), "r"(c1), "r"(address::in_cta(barrier, barrier_rank))
        : "memory");
}

// Elements outside the tensor are dropped.
__device__ __forceinline__ void store_2d(const TensorMap* map, const void* source, int32_t c0, int32_t c1) {
    asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group [%0, {%1, %2}], [%3];" ::"l"(map), "r"(c0), "r"(c1),
                 "r"(address::shared(source))
                 : "memory");
}

// Adds the box to the tensor in global memory, element by element.
__device__ __forceinline__ void add_2d(const TensorMap* map, const void* source, int32_t c0, int32_t c1) {
    asm volatile("cp.reduce.async.bulk.tensor.2d.global.shared::cta.add.tile.bulk_group [%0, {%1, %2}], [%3];" ::"l"(map),
                 "r"(c0), "r"(c1), "r"(address::shared(source))
                 : "memory");
}

__device__ __forceinline__ void commit_group() { asm volatile("cp.async.bulk.commit_group;" ::: "memory"); }

// Until at most PENDING of this thread's groups still have to read their sources.
template <int PENDING>
__device__ __forceinline__ void wait_group_read() {
    asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(PENDING) : "memory");
}

// Until at most PENDING of this thread's groups are incomplete: the others' writes are done.
template <int PENDING>
__device__ __forceinline__ void wait_group() {
    asm volatile("cp.async.bulk.wait_group %0;" ::"n"(PENDING) : "memory");
}

__device__ __forceinline__ void prefetch_map(const TensorMap* map) {
    asm volatile("prefetch.tensormap [%0];" ::"l"(map) : "memory");
}

}  // namespace tma
