// The largest magnitude of every group of rows of x (M, K): NaN above infinity above numbers, 0 for no elements.
//
// A warp reads a piece of a row, LOADS vectors of 16 bytes a lane, and keeps the maximum of the group that it is in. A
// CTA takes neighbouring pieces, so that it meets few groups; their maxima meet in shared memory, and from there go to
// the results. One pass over x, whatever the groups. What NVFP4 makes of the results is stored by who is last, CTA 0.
#pragma once

#include <cstdint>

#include "common/dependent_launch.cuh"
#include "common/global_memory.cuh"
#include "common/grid_maximum.cuh"
#include "common/variant.cuh"
#include "quantize/input.cuh"
#include "quantize/tensor_scale.cuh"

namespace zoo {

// All rows are one group.
struct OneGroup {
    static constexpr int count = 1;
    uint32_t rows;

    __device__ __forceinline__ void read() const {}
    __device__ __forceinline__ uint32_t end(int) const { return rows; }
    __device__ __forceinline__ int find(uint32_t) const { return 0; }
    __device__ __forceinline__ int next(int group, uint32_t) const { return group; }
};

// Group g is rows [offsets[g - 1], offsets[g]).
template <int THREADS>
struct RaggedGroups {
    const int32_t* offsets;
    int32_t count;
    int32_t* ends;  // shared memory: of the first THREADS groups, and the last one's

    // By all threads, before a barrier. One trip to memory for all questions.
    __device__ __forceinline__ void read() const {
        const int own = threadIdx.x;
        if (own < count) ends[own] = offsets[own];
        if (own == 0) ends[THREADS] = offsets[count - 1];
    }

    __device__ __forceinline__ uint32_t end(int group) const {
        return group < THREADS ? ends[group] : group == count - 1 ? ends[THREADS] : offsets[group];
    }

    // The first group that ends after a row, as many as end before: by all threads of a CTA, a thread a group.
    __device__ __forceinline__ int find(uint32_t row) const {
        int found = 0;
#pragma unroll 1
        for (int first = 0; first < count; first += THREADS) {
            const int group = first + static_cast<int>(threadIdx.x);
            found += __syncthreads_count(group < count && end(group) <= row);
        }
        return found;
    }

    // The same by one warp, from a group on that ends before.
    __device__ __forceinline__ int next(int group, uint32_t row) const {
#pragma unroll 1
        while (end(group) <= row) group++;
        return group;
    }
};

// One element, as a word that Input<X> takes: the other half of it is zero.
template <class X>
__device__ __forceinline__ uint32_t load_element(const uint8_t* address) {
    if constexpr (Input<X>::VALUES == 4)
        return *reinterpret_cast<const uint32_t*>(address) & 0x7FFFFFFF;
    else
        return *reinterpret_cast<const uint16_t*>(address);
}

// What a warp finds in piece `part` of a row: vectors at multiples of 16 bytes, and with part 0 also the elements before
// the first and after the last of them. `meanwhile` runs while the loads are under way.
template <class X, int LOADS, class Meanwhile>
__device__ __forceinline__ uint32_t largest_of_piece(const uint8_t* row, int64_t K, uint32_t part, int lane,
                                                     Meanwhile meanwhile) {
    using In = Input<X>;
    constexpr int BYTES = 16 / In::VALUES;
    const int head = min(K, int64_t((16 - reinterpret_cast<uint64_t>(row) % 16) % 16 / BYTES));
    const int64_t first = int64_t(part) * 32 * LOADS + lane;
    const int left =
        min(int64_t(uint64_t(K - head) / In::VALUES) - first, int64_t(32 * LOADS));  // vectors, from this lane's first on
    const uint8_t* address = row + head * BYTES + first * 16;
    asm("" : "+l"(address));  // opaque: or the compiler adds up the first address in another way than the others

    uint4 data[LOADS];
#pragma unroll
    for (int i = 0; i < LOADS; i++) {
        data[i] = make_uint4(0, 0, 0, 0);
        if (i * 32 < left) data[i] = load_16_bytes(address + i * 512);
    }
    meanwhile();
    uint32_t largest = 0;
    if (part == 0) {
        const int tail = static_cast<uint32_t>(K - head) % In::VALUES;
        if (lane < head) largest = load_element<X>(row + lane * BYTES);
        if (lane < tail) largest = In::larger(largest, load_element<X>(row + (K - tail + lane) * BYTES));
    }
#pragma unroll
    for (int i = 0; i < LOADS; i++) largest = In::larger(largest, In::largest(data[i]));
    return largest;
}

// Enough for every vector of a row.
template <class X, int LOADS>
__device__ __forceinline__ uint32_t pieces_of_row(int64_t K) {
    constexpr int PIECE = 32 * LOADS * Input<X>::VALUES;
    return (static_cast<uint64_t>(K) + PIECE - 1) / PIECE;
}

// By all threads of a CTA, when the results are there.
__device__ __forceinline__ void store_tensor_scales(const uint32_t* amax, float* tensor_scale, int count) {
#pragma unroll 1
    for (int i = threadIdx.x; i < count; i += blockDim.x) tensor_scale[i] = nvfp4_tensor_scale(__uint_as_float(__ldcg(amax + i)));
}

// What a worker does. When it returns, all threads have added theirs.
template <class X, int THREADS, int LOADS, class Groups>
__device__ __forceinline__ void add_maxima(const Groups& groups, const GridMaximum& maximum, const uint8_t* x, int64_t K,
                                           int64_t x_stride) {
    using In = Input<X>;
    constexpr int WARPS = THREADS / 32;
    __shared__ uint32_t meeting[THREADS];  // maxima of the first THREADS groups that the CTA meets
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    groups.read();
    meeting[threadIdx.x] = 0;
    __syncthreads();
    const uint32_t parts = pieces_of_row<X, LOADS>(K);
    const uint32_t pieces = groups.end(groups.count - 1) * parts;
    const uint32_t each = pieces / GridMaximum::workers(), rest = pieces % GridMaximum::workers();
    const uint32_t begin = GridMaximum::worker() * each + min(GridMaximum::worker(), rest);
    const uint32_t end = begin + each + (GridMaximum::worker() < rest);

    // No division in the loop: its loads would wait for it. Without columns there are no pieces.
    const uint32_t divisor = max(parts, 1u), row_step = WARPS / divisor, part_step = WARPS % divisor;
    uint32_t row = (begin + warp) / divisor, part = (begin + warp) % divisor;
    const int first_group = min(groups.find(begin / divisor), groups.count - 1);
    int group = first_group;
    uint32_t group_end = groups.end(group), largest = 0;
    bool clear = false;  // of the results, as far as this thread knows
    for (uint32_t piece = begin + warp;; piece += WARPS) {
        const bool more = piece < end;
        if (!more || row >= group_end) {  // done with the group
            const uint32_t magnitude = __reduce_max_sync(0xFFFFFFFF, In::magnitude(largest));
            const uint32_t found = __float_as_uint(In::magnitude_to_float(magnitude));
            largest = 0;
            if (lane == 0 && group - first_group < THREADS) {
                atomicMax(meeting + group - first_group, found);
            } else if (lane == 0) {
                while (!clear) clear = maximum.is_clear();
                maximum.add(group, found);
            }
            if (!more) break;
            group = groups.next(group, row);
            group_end = groups.end(group);
        }
        const uint8_t* address = x + row * x_stride * (16 / In::VALUES);
        const uint32_t found = largest_of_piece<X, LOADS>(address, K, part, lane, [&] {
            if (threadIdx.x == 0 && !clear) clear = maximum.is_clear();
        });
        largest = In::larger(largest, found);
        row += row_step, part += part_step;
        if (part >= divisor) row++, part -= divisor;
    }

    if (threadIdx.x == 0)
        while (!clear) clear = maximum.is_clear();
    __syncthreads();
    if (meeting[threadIdx.x] != 0) maximum.add(first_group + threadIdx.x, meeting[threadIdx.x]);
}

// `tensor_scale` may be null.
template <class X, int THREADS, int LOADS, class Groups>
__device__ __forceinline__ void find_amax(const Groups& groups, const uint8_t* x, uint32_t* amax, float* tensor_scale,
                                          uint32_t* workspace, int64_t K, int64_t x_stride) {
    let_next_kernel_launch();
    wait_for_previous_kernel();
    const GridMaximum maximum(amax, groups.count, workspace);
    if (GridMaximum::works()) {
        add_maxima<X, THREADS, LOADS>(groups, maximum, x, K, x_stride);
        if (tensor_scale != nullptr) {
            __threadfence();
            __syncthreads();
        }
        if (threadIdx.x == 0) maximum.leave();
    }
    if (blockIdx.x == 0 && tensor_scale != nullptr) store_tensor_scales(amax, tensor_scale, groups.count);
}

}  // namespace zoo
