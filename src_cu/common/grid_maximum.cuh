// Largest magnitudes over a whole grid in one launch, with nothing cleared beforehand and no state left behind.
//
// CTA 0 does no work but clear the results; the others, the workers, add theirs by atomic maxima, which know no order. A
// worker must not add before the results are clear *in this launch*. Two words of workspace tell it:
//
//   CTA 0:      count_before = count;  clear the results;  beat = beat + 1, again and again until count is
//               count_before + workers
//   a worker:   beat_before = beat;  work;  wait until beat is not beat_before;  add its maxima;  count = count + 1
//
// Who sees the beat change knows that somebody writes it now, and only CTA 0 does, after it has cleared. So any bits in
// the workspace are right: those of an earlier launch, of one that was aborted, or of nobody. CTAs wait for CTA 0 only,
// and that one starts first. It counts the workers so as not to leave before the last has looked; if they have fenced
// what they added, CTA 0 has the results then, and may make something of them.
#pragma once

#include <cstdint>

namespace zoo {

class GridMaximum {
   public:
    // `results` of `count` float32, as their bits; workspace: two words. Called by all threads of every CTA, after the
    // previous kernel has ended. A grid of one CTA clears and works.
    __device__ __forceinline__ GridMaximum(uint32_t* results, int count, uint32_t* workspace)
        : results(results), beat(workspace), count(workspace + 1) {
        if (gridDim.x == 1) {
            clear(count);
        } else if (blockIdx.x == 0) {
            const uint32_t count_before = threadIdx.x == 0 ? load(this->count) : 0;
            clear(count);
            if (threadIdx.x == 0) {
                uint32_t now = load(beat);
                do {
                    store_release(beat, ++now);
                    __nanosleep(100);
                } while (load_acquire(this->count) - count_before != gridDim.x - 1);
            }
            __syncthreads();
        } else {
            beat_before = load(beat);
        }
    }

    static __device__ __forceinline__ bool works() { return gridDim.x == 1 || blockIdx.x != 0; }
    static __device__ __forceinline__ uint32_t workers() { return gridDim.x == 1 ? 1 : gridDim.x - 1; }
    static __device__ __forceinline__ uint32_t worker() { return gridDim.x == 1 ? 0 : blockIdx.x - 1; }

    // Whether results may be added to: by the thread that asks, and by those that a barrier orders after it. The answer
    // takes as long as a load from memory, so ask early.
    __device__ __forceinline__ bool is_clear() const { return gridDim.x == 1 || load_acquire(beat) != beat_before; }

    // A float32 that is not negative; its bits order as it does, infinity above every number and NaN above infinity.
    __device__ __forceinline__ void add(int index, uint32_t bits) const {
        atomicMax(results + index, bits > 0x7F800000 ? 0x7FFFFFFF : bits);
    }

    // By one thread of a worker, after all its threads have waited; if CTA 0 is to read the results, they fence before.
    __device__ __forceinline__ void leave() const {
        if (gridDim.x > 1) atomicAdd(count, 1);
    }

   private:
    uint32_t *results, *beat, *count;
    uint32_t beat_before = 0;

    __device__ __forceinline__ void clear(int size) const {
        for (int i = threadIdx.x; i < size; i += blockDim.x) results[i] = 0;
        __syncthreads();
    }
    static __device__ __forceinline__ uint32_t load(const uint32_t* address) {
        uint32_t v;
        asm volatile("ld.relaxed.gpu.global.u32 %0, [%1];" : "=r"(v) : "l"(address) : "memory");
        return v;
    }
    static __device__ __forceinline__ uint32_t load_acquire(const uint32_t* address) {
        uint32_t v;
        asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(v) : "l"(address) : "memory");
        return v;
    }
    static __device__ __forceinline__ void store_release(uint32_t* address, uint32_t v) {
        asm volatile("st.release.gpu.global.u32 [%0], %1;" ::"l"(address), "r"(v) : "memory");
    }
};

}  // namespace zoo
