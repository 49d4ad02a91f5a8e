// The largest magnitude of every group of rows of x (M, K): NaN above infinity above numbers, 0 for no elements. Included
// by kernels/amax.cu and kernels/amax_groups.cu.
//
// A warp reads shares of a row, LOADS vectors of 16 bytes a lane, and keeps the maximum of the current group. A CTA reads
// neighbouring shares, so it has rows of few groups. Their maxima are combined in shared memory, then in the results
// (common/grid_maximum.cuh). x is read once. CTA 0 is the last to finish, so it stores the NVFP4 tensor scales.
#pragma once

#include <cstdint>

#include "common/dependent_launch.cuh"
#include "common/global_memory.cuh"
#include "common/grid_maximum.cuh"
#include "common/input_values.cuh"
#include "quantize/scales/tensor_scale.cuh"

namespace zoo {

// One group of all rows.
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
    int32_t* ends;  // shared memory: ends of the first THREADS groups, then the end of the last group

    // Called by all threads, before a barrier. Reads all ends that the CTA needs in one round trip to memory.
    __device__ __forceinline__ void read() const {
        const int own = threadIdx.x;
        if (own < count) ends[own] = offsets[own];
        if (own == 0) ends[THREADS] = offsets[count - 1];
    }

    __device__ __forceinline__ uint32_t end(int group) const {
        return group < THREADS ? ends[group] : group == count - 1 ? ends[THREADS] : offsets[group];
    }

    // The first group that ends after a row. Called by all threads; a thread checks one group at a time.
    __device__ __forceinline__ int find(uint32_t row) const {
        int found = 0;
#pragma unroll 1
        for (int first = 0; first < count; first += THREADS) {
            const int group = first + static_cast<int>(threadIdx.x);
            found += __syncthreads_count(group < count && end(group) <= row);
        }
        return found;
    }

    // The first group from `group` on that ends after a row. Called by one warp.
    __device__ __forceinline__ int next(int group, uint32_t row) const {
#pragma unroll 1
        while (end(group) <= row) group++;
        return group;
    }
};

// One element, as a word that Input<X> accepts: the other half is zero.
template <class X>
__device__ __forceinline__ uint32_t load_element(const uint8_t* address) {
    if constexpr (Input<X>::VALUES == 4)
        return *reinterpret_cast<const uint32_t*>(address) & 0x7FFFFFFF;
    else
        return *reinterpret_cast<const uint16_t*>(address);
}

// The largest magnitude of share `share_in_row` of a row. Vectors start at multiples of 16 bytes. Share 0 includes the
// elements before the first vector and after the last vector. `meanwhile` runs while the loads are in flight.
template <class X, int LOADS, class Meanwhile>
__device__ __forceinline__ uint32_t largest_of_share(const uint8_t* row, int64_t K, uint32_t share_in_row, int lane,
                                                     Meanwhile meanwhile) {
    using In = Input<X>;
    constexpr int BYTES = 16 / In::VALUES;
    const int head = min(K, int64_t((16 - reinterpret_cast<uint64_t>(row) % 16) % 16 / BYTES));
    const int64_t first = int64_t(share_in_row) * 32 * LOADS + lane;
    const int left =
        min(int64_t(uint64_t(K - head) / In::VALUES) - first, int64_t(32 * LOADS));  // vectors from this lane's first on
    const uint8_t* address = row + head * BYTES + first * 16;
    asm("" : "+l"(address));  // opaque, or the compiler computes the first address separately

    uint4 data[LOADS];
#pragma unroll
    for (int i = 0; i < LOADS; i++) {
        data[i] = make_uint4(0, 0, 0, 0);
        if (i * 32 < left) data[i] = load_16_bytes(address + i * 512);
    }
    meanwhile();
    uint32_t largest = 0;
    if (share_in_row == 0) {
        const int tail = static_cast<uint32_t>(K - head) % In::VALUES;
        if (lane < head) largest = load_element<X>(row + lane * BYTES);
        if (lane < tail) largest = In::larger(largest, load_element<X>(row + (K - tail + lane) * BYTES));
    }
#pragma unroll
    for (int i = 0; i < LOADS; i++) largest = In::larger(largest, In::largest(data[i]));
    return largest;
}

// Shares that hold every vector of a row.
template <class X, int LOADS>
__device__ __forceinline__ uint32_t shares_of_row(int64_t K) {
    constexpr int SHARE = 32 * LOADS * Input<X>::VALUES;
    return (static_cast<uint64_t>(K) + SHARE - 1) / SHARE;
}

// Called by all threads of CTA 0, when the results are complete.
__device__ __forceinline__ void store_tensor_scales(const uint32_t* amax, float* tensor_scale, int count) {
#pragma unroll 1
    for (int i = threadIdx.x; i < count; i += blockDim.x) tensor_scale[i] = nvfp4_tensor_scale(__uint_as_float(__ldcg(amax + i)));
}

// The work of a worker CTA. When the function returns, all its threads have added their maxima.
template <class X, int THREADS, int LOADS, class Groups>
__device__ __forceinline__ void add_maxima(const Groups& groups, const GridMaximum& maximum, const uint8_t* x, int64_t K,
                                           int64_t x_stride) {
    using In = Input<X>;
    constexpr int WARPS = THREADS / 32;
    __shared__ uint32_t cta_maxima[THREADS];  // maxima of the first THREADS groups that the CTA reads
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    groups.read();
    cta_maxima[threadIdx.x] = 0;
    __syncthreads();
    const uint32_t row_shares = shares_of_row<X, LOADS>(K);
    const uint32_t shares = groups.end(groups.count - 1) * row_shares;
    const uint32_t each = shares / GridMaximum::workers(), rest = shares % GridMaximum::workers();
    const uint32_t begin = GridMaximum::worker() * each + min(GridMaximum::worker(), rest);
    const uint32_t end = begin + each + (GridMaximum::worker() < rest);

    // The loop has no division: its loads would wait for it. Without columns there are no shares.
    const uint32_t divisor = max(row_shares, 1u), row_step = WARPS / divisor, share_step = WARPS % divisor;
    uint32_t row = (begin + warp) / divisor, share_in_row = (begin + warp) % divisor;
    const int first_group = min(groups.find(begin / divisor), groups.count - 1);
    int group = first_group;
    uint32_t group_end = groups.end(group), largest = 0;
    bool cleared = false;  // whether this thread has seen that the results are cleared
    for (uint32_t share = begin + warp;; share += WARPS) {
        const bool more = share < end;
        if (!more || row >= group_end) {  // the group is complete
            const uint32_t magnitude = __reduce_max_sync(0xFFFFFFFF, In::magnitude(largest));
            const uint32_t found = __float_as_uint(In::magnitude_to_float(magnitude));
            largest = 0;
            if (lane == 0 && group - first_group < THREADS) {
                atomicMax(cta_maxima + group - first_group, found);
            } else if (lane == 0) {
                while (!cleared) cleared = maximum.is_clear();
                maximum.add(group, found);
            }
            if (!more) break;
            group = groups.next(group, row);
            group_end = groups.end(group);
        }
        const uint8_t* address = x + row * x_stride * (16 / In::VALUES);
        const uint32_t found = largest_of_share<X, LOADS>(address, K, share_in_row, lane, [&] {
            if (threadIdx.x == 0 && !cleared) cleared = maximum.is_clear();
        });
        largest = In::larger(largest, found);
        row += row_step, share_in_row += share_step;
        if (share_in_row >= divisor) row++, share_in_row -= divisor;
    }

    if (threadIdx.x == 0)
        while (!cleared) cleared = maximum.is_clear();
    __syncthreads();
    if (cta_maxima[threadIdx.x] != 0) maximum.add(first_group + threadIdx.x, cta_maxima[threadIdx.x]);
}

// The kernel. `tensor_scale` may be null.
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
