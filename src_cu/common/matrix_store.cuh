// stmatrix: a warp stores 8 x 8 matrices of 16-bit elements from the registers of a wgmma accumulator to shared memory.
//
// Lane l passes the address of 16 bytes: row l % 8 of matrix l / 8. Register i of lane l holds elements 2 (l % 4) and 2 (l % 4) + 1 of
// row l / 4 of matrix i.
#pragma once

#include <cstdint>

#include "common/mbarrier.cuh"

namespace zoo {

__device__ __forceinline__ void store_matrices(void* row, const uint32_t (&matrices)[4]) {
    asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(shared_address(row)), "r"(matrices[0]),
                 "r"(matrices[1]), "r"(matrices[2]), "r"(matrices[3])
                 : "memory");
}

// Stores COUNT transposed matrices: register i of lane l holds elements of column l / 4.
template <int COUNT>
__device__ __forceinline__ void store_matrices_transposed(uint32_t row, const uint32_t* matrices) {
    static_assert(COUNT == 1 || COUNT == 2 || COUNT == 4);
    if constexpr (COUNT == 1)
        asm volatile("stmatrix.sync.aligned.m8n8.x1.trans.shared.b16 [%0], {%1};" ::"r"(row), "r"(matrices[0]) : "memory");
    else if constexpr (COUNT == 2)
        asm volatile("stmatrix.sync.aligned.m8n8.x2.trans.shared.b16 [%0], {%1, %2};" ::"r"(row), "r"(matrices[0]),
                     "r"(matrices[1])
                     : "memory");
    else
        asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(row), "r"(matrices[0]),
                     "r"(matrices[1]), "r"(matrices[2]), "r"(matrices[3])
                     : "memory");
}

}  // namespace zoo
