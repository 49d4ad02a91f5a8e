// Dynamic shared memory starts wherever the static variables end; swizzled tiles must start on a multiple of 1024 bytes, as the 128-byte
// swizzle repeats after 8 rows of 128. So ask for 1024 bytes more than needed and round up.
#pragma once

#include <cstdint>

#include "common/mbarrier.cuh"

__device__ __forceinline__ uint8_t* align_1024(uint8_t* pointer) {
    return pointer + ((1024 - (zoo::shared_address(pointer) & 1023)) & 1023);
}
