// Copies for a CTA pair (sm_100): each CTA copies to its own shared memory and counts on the barrier of the first CTA, which multiplies.
//
// The pair is the whole cluster. With CTAS = 1 the functions serve a CTA without a partner.
#pragma once

#include <cstdint>

#include "common/cluster.cuh"
#include "common/tensor_copy.cuh"

namespace zoo {

template <int CTAS>
__device__ __forceinline__ void load_box_for(void* target, const TensorMap& map, int32_t c0, int32_t c1, Barrier* barrier) {
    if constexpr (CTAS == 1) {
        load_box(target, map, c0, c1, barrier);
    } else {
        asm volatile(
            "cp.async.bulk.tensor.2d.cta_group::2.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3}], [%4];" ::
                "r"(shared_address(target)),
            "l"(&map), "r"(c0), "r"(c1), "r"(address_in_cta(barrier, 0))
            : "memory");
    }
}

// As load_box_for(), into the shared memory of both CTAs of a pair: L2 is read once. The first CTA's barrier counts the bytes of both copies.
template <int CTAS>
__device__ __forceinline__ void load_box_for_all(void* target, const TensorMap& map, int32_t c0, int32_t c1, Barrier* barrier) {
    if constexpr (CTAS == 1) {
        load_box(target, map, c0, c1, barrier);
    } else {
        asm volatile(
            "cp.async.bulk.tensor.2d.cta_group::2.shared::cluster.global.tile.mbarrier::complete_tx::bytes.multicast::cluster "
            "[%0], [%1, {%2, %3}], [%4], %5;" ::"r"(shared_address(target)),
            "l"(&map), "r"(c0), "r"(c1), "r"(address_in_cta(barrier, 0)), "h"(uint16_t(0b11))
            : "memory");
    }
}

// Loads four rows of a matrix by index. The box of the map is one row high. An index outside the matrix gives zeros.
__device__ __forceinline__ void load_four_rows(void* target, const TensorMap& map, int32_t column, int4 rows, Barrier* barrier) {
    asm volatile(
        "cp.async.bulk.tensor.2d.shared::cta.global.tile::gather4.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3, %4, %5, %6}], [%7];" ::
            "r"(shared_address(target)),
        "l"(&map), "r"(column), "r"(rows.x), "r"(rows.y), "r"(rows.z), "r"(rows.w), "r"(shared_address(barrier))
        : "memory");
}

// One arrival at the first CTA's barrier, which also announces the bytes of this CTA's copies.
template <int CTAS>
__device__ __forceinline__ void arrive_expecting_bytes_at_first(Barrier* barrier, uint32_t bytes) {
    if constexpr (CTAS == 1) {
        arrive_expecting_bytes(barrier, bytes);
    } else {
        asm volatile("mbarrier.arrive.expect_tx.shared::cluster.b64 _, [%0], %1;" ::"r"(address_in_cta(barrier, 0)), "r"(bytes)
                     : "memory");
    }
}

// One arrival at the first CTA's barrier. It publishes writes to shared memory by this thread and by threads synchronised with it.
template <int CTAS>
__device__ __forceinline__ void publish_at_first(Barrier* barrier) {
    if constexpr (CTAS == 1) {
        arrive(barrier);
    } else {
        asm volatile("fence.release.sync_restrict::shared::cta.cluster;" ::: "memory");
        asm volatile("mbarrier.arrive.relaxed.cluster.shared::cluster.b64 _, [%0];" ::"r"(address_in_cta(barrier, 0)) : "memory");
    }
}

// Waits as wait() does. Afterwards shared memory that the other CTA published is visible, too. Fences of shared memory alone are cheap:
// acquire.cluster would empty the L1 cache, and release.cluster would wait for all of the GPU's memory.
template <int CTAS>
__device__ __forceinline__ void wait_for_published(Barrier* barrier, uint32_t parity) {
    if constexpr (CTAS == 1) {
        wait(barrier, parity);
    } else {
        uint32_t over;
        do {
            asm volatile(
                "{\n\t"
                ".reg .pred over;\n\t"
                "mbarrier.try_wait.parity.relaxed.cluster.shared::cta.b64 over, [%1], %2;\n\t"
                "selp.u32 %0, 1, 0, over;\n\t"
                "}"
                : "=r"(over)
                : "r"(shared_address(barrier)), "r"(parity)
                : "memory");
        } while (!over);
        asm volatile("fence.acquire.sync_restrict::shared::cluster.cluster;" ::: "memory");
    }
}

// True in one lane of a converged warp, and in the same lane each time.
__device__ __forceinline__ bool elected() {
    uint32_t one;
    asm volatile(
        "{\n\t"
        ".reg .pred one;\n\t"
        "elect.sync _|one, 0xFFFFFFFF;\n\t"
        "selp.u32 %0, 1, 0, one;\n\t"
        "}"
        : "=r"(one));
    return one != 0;
}

}  // namespace zoo
