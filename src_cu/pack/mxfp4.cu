// pack.mxfp4: rows of 4-bit elements -> the same rows, padded with zeros to a multiple of 128 elements. The copy engine reads 128
// at a time where it lays 4 bits in 8; a checkpoint's rows, of 2880 elements for example, are packed once.
//
//     a thread   piece i, i + THREADS, ...   16 bytes each, counted over all rows: loads first, then stores

#include "common/dependent_launch.cuh"
#include "common/global_memory.cuh"
#include "common/variant.cuh"

// `pieces` in all; `given` of a row are q's and `across` are packed's. Strides in bytes.
extern "C" __global__ void __launch_bounds__(Variant::THREADS)
    ZOO_KERNEL(const uint8_t* q, uint8_t* packed, int64_t pieces, int32_t given, int32_t across, int64_t q_stride,
               int64_t packed_stride) {
    using namespace zoo;
    constexpr int PIECES = Variant::PIECES, BYTES = 16;
    let_next_kernel_launch();
    const int64_t first = blockIdx.x * int64_t(Variant::THREADS * PIECES) + threadIdx.x;
    wait_for_previous_kernel();
    uint4 data[PIECES];
    uint8_t* targets[PIECES];
#pragma unroll
    for (int i = 0; i < PIECES; i++) {
        const int64_t piece = first + i * Variant::THREADS;
        const uint32_t row = uint32_t(piece) / uint32_t(across), column = uint32_t(piece) % uint32_t(across);
        targets[i] = piece < pieces ? packed + row * packed_stride + column * BYTES : nullptr;
        data[i] = {};
        if (piece < pieces && column < given) data[i] = load_16_bytes(q + row * q_stride + column * BYTES);
    }
#pragma unroll
    for (int i = 0; i < PIECES; i++)
        if (targets[i] != nullptr) store_16_bytes(targets[i], reinterpret_cast<const uint32_t*>(&data[i]));
}
