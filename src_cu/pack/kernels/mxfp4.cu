// pack.mxfp4: rows of 4-bit elements to rows padded with zeros to a multiple of 128 elements.
//
// Weights are packed once. The copy engine needs the padding: it reads 128 elements at a time when it expands 4 bits to 8, and a row of a
// checkpoint may have 2880 elements.
//
//     a thread   pieces i, i + THREADS, ...   16 bytes each, counted over all rows; all loads precede all stores

#include "common/dependent_launch.cuh"
#include "common/global_memory.cuh"

// `pieces`: all pieces of packed. A row of packed has `across` pieces, a row of q `given` pieces. Strides count bytes.
extern "C" __global__ void __launch_bounds__(Variant::THREADS) ZOO_KERNEL(ZOO_PARAMETERS) {
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
