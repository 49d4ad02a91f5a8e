// 1-D bulk copies, double buffered: y[i] = x[i] + 1 over an array cut into chunks.
//
//    chunk      0        1        2        3
//    buffer 0   load +1 store     load +1 store
//    buffer 1            load +1 store     load ...
//
// The load of chunk i+1 starts before chunk i is worked on. Its buffer was the source of chunk i-1's store, so that store must have
// finished *reading* (wait_group.read) first. The +1 is written by ordinary stores and read by the copy engine: every
// writing thread fences, then a CTA barrier, then one thread stores.
//
// Arrivals per phase: 1 (the loading thread), bytes: the chunk's.
#include "common/mbarrier.cuh"
#include "common/tensor_copy.cuh"

using namespace zoo;

constexpr int THREADS = 64;
constexpr int CHUNK = 256;  // elements
constexpr int BUFFERS = 2;
static_assert(CHUNK * sizeof(uint32_t) % 16 == 0, "bulk copies move multiples of 16 bytes");
static_assert(CHUNK % THREADS == 0, "whole rounds");

// A bulk copy the other way, by one thread.
__device__ __forceinline__ void store_bytes(void* target, const void* source, uint32_t bytes) {
    asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(target), "r"(shared_address(source)),
                 "r"(bytes)
                 : "memory");
}

extern "C" __global__ void bulk_copy(const uint32_t* x, uint32_t* y, int elements) {
    __shared__ alignas(128) uint32_t buffer[BUFFERS][CHUNK];
    __shared__ Barrier full[BUFFERS];

    if (threadIdx.x == 0) {
        for (int i = 0; i < BUFFERS; i++) initialise(&full[i], 1);
    }
    __syncthreads();

    // elements is a multiple of 4, so the last, shorter chunk is still a multiple of 16 bytes.
    auto chunk_elements = [&](int chunk) { return min(CHUNK, elements - chunk * CHUNK); };
    auto load = [&](int chunk, uint32_t stage) {
        const uint32_t bytes = chunk_elements(chunk) * sizeof(uint32_t);
        arrive_expecting_bytes(&full[stage], bytes);
        load_bytes(buffer[stage], x + chunk * CHUNK, bytes, &full[stage]);
    };

    const int chunks = (elements + CHUNK - 1) / CHUNK;
    Ring<BUFFERS> ring;
    if (threadIdx.x == 0 && static_cast<int>(blockIdx.x) < chunks) load(blockIdx.x, 0);
    for (int chunk = blockIdx.x; chunk < chunks; chunk += gridDim.x) {
        const int next = chunk + gridDim.x;
        if (threadIdx.x == 0 && next < chunks) {
            wait_until_stores_have_read();  // the store of the chunk before has read the other buffer
            load(next, ring.stage ^ 1);
        }
        wait(&full[ring.stage], ring.parity);
        for (int i = threadIdx.x; i < chunk_elements(chunk); i += THREADS) buffer[ring.stage][i] += 1;
        let_copies_see_shared_memory();
        __syncthreads();
        if (threadIdx.x == 0) {
            store_bytes(y + chunk * CHUNK, buffer[ring.stage], chunk_elements(chunk) * sizeof(uint32_t));
        }
        ring.advance();
    }
    if (threadIdx.x == 0) wait_until_stores_have_read();
}
