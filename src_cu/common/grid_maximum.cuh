// Maxima over a whole grid in one launch. The caller clears nothing beforehand, and the workspace keeps no state.
//
// CTA 0 only clears the results. The other CTAs, the workers, add their maxima with atomics, whose order does not matter. A worker must not
// add before the results are clear *in this launch*. Two words of workspace report it:
//
//   CTA 0:      count_before = count;  clear the results;  beat = beat + 1, again and again until count is
//               count_before + workers
//   a worker:   beat_before = beat;  work;  wait until beat is not beat_before;  add its maxima;  count = count + 1
//
// A worker that sees the beat change knows that CTA 0 has cleared the results: only CTA 0 writes the beat. So the workspace may hold any
// bits at first, also the bits of an aborted launch. CTAs only wait for CTA 0, which starts first. CTA 0 counts the workers, because it may
// not leave before the last worker has seen the beat. If workers fence their maxima before they leave, CTA 0 can then read the results.
#pragma once

#include <cstdint>

#include "common/global_words.cuh"

namespace zoo {

class GridMaximum {
   public:
    // `results`: the bits of `count` float32. `workspace`: two words. All threads of every CTA call this after the previous kernel has
    // ended. A grid of one CTA clears and works.
    __device__ __forceinline__ GridMaximum(uint32_t* results, int count, uint32_t* workspace)
        : results(results), beat(workspace), count(workspace + 1) {
        if (gridDim.x == 1) {
            clear(count);
        } else if (blockIdx.x == 0) {
            const uint32_t count_before = threadIdx.x == 0 ? load_relaxed(this->count) : 0;
            clear(count);
            if (threadIdx.x == 0) {
                uint32_t now = load_relaxed(beat);
                do {
                    store_release(beat, ++now);
                    __nanosleep(100);
                } while (load_acquire(this->count) - count_before != gridDim.x - 1);
            }
            __syncthreads();
        } else {
            beat_before = load_relaxed(beat);
        }
    }

    static __device__ __forceinline__ bool works() { return gridDim.x == 1 || blockIdx.x != 0; }
    static __device__ __forceinline__ uint32_t workers() { return gridDim.x == 1 ? 1 : gridDim.x - 1; }
    static __device__ __forceinline__ uint32_t worker() { return gridDim.x == 1 ? 0 : blockIdx.x - 1; }

    // Whether the calling thread may add, and threads that a barrier orders after it. The call takes a load from memory: call it early.
    __device__ __forceinline__ bool is_clear() const { return gridDim.x == 1 || load_acquire(beat) != beat_before; }

    // `bits`: a float32 that is not negative. Its bits have the order of the numbers: NaN is above infinity.
    __device__ __forceinline__ void add(int index, uint32_t bits) const {
        atomicMax(results + index, bits > 0x7F800000 ? 0x7FFFFFFF : bits);
    }

    // Called by one thread of a worker after a CTA barrier. If CTA 0 reads the results, all threads fence before.
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
};

}  // namespace zoo
