// gemm.fp8b128.k_grouped on Blackwell: D (M, N) of each group = A (M, K) B (N, K)^T over the group's range of K, a scale for 1 x 128 of
// both. Blocks begin anew with every group, at any multiple of 16 of K:
//
//     K        |  group 0            |  group 1        |          nobody's
//     lines    |    0     |    1  ...|   0     |    1  ...      what a line has beyond its group is another's, perhaps NaN
//     steps    | . | . | . | . | . | . |                        of 32: the last one's rest is cleared in shared memory
//     scales   |    0     |    1     |   2     |    3     |     blocks of all groups, one after the other; rows contiguous
//
// The scales' warp clears: its ring has as many stages as that of elements, so it knows where the line lies, and the multiplier waits for
// its scales anyway.

#include "gemm/block_scaled/chosen.cuh"
#include "gemm/block_scaled/order.cuh"
#include "gemm/block_scaled/scales_by_hand.cuh"

namespace zoo {

using Tile = TileOf<Variant>;
constexpr int DYNAMIC_SHARED_BYTES = sizeof(Tile);
static_assert(Tile::CTAS == 1 && !Tile::SWAPPED && Tile::STAGES == Tile::SCALE_STAGES);

struct GroupsAlongK {
    const int* ends;
    int count, M, N;
    bool leaves_empty;  // no tiles of groups without elements

    __device__ __forceinline__ bool at(int index, ScaledWork& work) const {
        const int rows = tiles_of(M, Tile::TOKENS), columns = tiles_of(N, Tile::COLUMNS), group = index / (rows * columns);
        if (group >= count) return false;
        const int first = group > 0 ? ends[group - 1] : 0, elements = ends[group] - first;
        if (leaves_empty && elements == 0) return false;
        int blocks = 0;
        for (int before = int(threadIdx.x) % 32; before < group; before += 32)
            blocks += tiles_of(ends[before] - (before > 0 ? ends[before - 1] : 0), LINE_BYTES);
        const Banded<BAND_OF_TILES> place(index % (rows * columns), rows, columns);
        work.group = group;
        work.first_byte = first;
        work.elements = elements;
        work.token = work.row = place.row * Tile::TOKENS;
        work.weight = work.column = place.column * Tile::COLUMNS;
        work.token_scales = work.weight_scales = __reduce_add_sync(0xFFFFFFFF, blocks);  // the group's first block
        work.rows = min(Tile::TOKENS, M - work.row);
        work.columns = min(Tile::COLUMNS, N - work.column);
        work.first_line = 0;
        work.end_line = tiles_of(elements, LINE_BYTES);
        return true;
    }
};

struct RowsAlongK {
    static constexpr int SCALES_OF_WEIGHTS = 4;  // of 128, in each lane
    static constexpr bool ENDS_WITHIN_STEPS = true;
    __device__ __forceinline__ int64_t place(const ScaleMatrix&, const ScaledWork& work, int token) const {
        return work.token + token;
    }
    __device__ __forceinline__ int64_t place_of_weight(const ScaleMatrix&, const ScaledWork& work, int row) const {
        return work.weight + row;
    }
    __device__ __forceinline__ int first_block(const ScaledWork& work) const { return work.token_scales; }

    // In the stage of the tile's last line, when it is there.
    __device__ __forceinline__ void clear_rest_of_step(Tile& tile, const Ring<Tile::SCALE_STAGES>& ring,
                                                       const ScaledWork& work) const {
        constexpr int STEP = LINE_BYTES / STEPS, CHUNK_BYTES = 16, ROWS = LANES + Tile::RIGHT_ROWS;
        const int first = work.elements % LINE_BYTES, end = tiles_of(first, STEP) * STEP;
        if (first == end) return;
        wait(&tile.full[ring.stage], ring.parity);
        uint8_t* lines = tile.stages[ring.stage].left;  // and those of right after them
#pragma unroll 1
        for (int chunk = first / CHUNK_BYTES; chunk < end / CHUNK_BYTES; chunk++) {
            const int kept = max(first - chunk * CHUNK_BYTES, 0);
#pragma unroll 1
            for (int row = int(threadIdx.x) % 32; row < ROWS; row += 32) {
                uint4* place = reinterpret_cast<uint4*>(lines + row * LINE_BYTES + (chunk ^ row % 8) * CHUNK_BYTES);
                const uint4 old = *place;
                *place = {first_bytes(old.x, kept), first_bytes(old.y, kept - 4), first_bytes(old.z, kept - 8),
                          first_bytes(old.w, kept - 12)};
            }
        }
    }

   private:
    __device__ __forceinline__ static uint32_t first_bytes(uint32_t word, int count) {
        return count >= 4 ? word : count <= 0 ? 0 : word & ((1u << 8 * count) - 1);
    }
};

// Eight sums of a row and what D has there. f32 as L2 adds: subnormal numbers are zeros.
__device__ __forceinline__ void add_eight(const uint8_t* before, bool f32, float* sums) {
    const uint4 first = load_16_bytes(before);
    if (f32) {
        const uint4 then = load_16_bytes(before + 16);
        const uint32_t bits[8] = {first.x, first.y, first.z, first.w, then.x, then.y, then.z, then.w};
#pragma unroll
        for (int i = 0; i < 8; i++)
            asm("add.rn.ftz.f32 %0, %1, %2;" : "=f"(sums[i]) : "f"(__uint_as_float(bits[i])), "f"(sums[i]));
    } else {
        const uint32_t pairs[4] = {first.x, first.y, first.z, first.w};
#pragma unroll
        for (int i = 0; i < 8; i++)
            sums[i] = __fadd_rn(__uint_as_float(i % 2 ? pairs[i / 2] & 0xFFFF0000 : pairs[i / 2] << 16), sums[i]);
    }
}

}  // namespace zoo

extern "C" __global__ void __launch_bounds__(zoo::THREADS_OF_ROLES, 1)
    ZOO_KERNEL(const __grid_constant__ zoo::TensorMap a, const __grid_constant__ zoo::TensorMap b, const uint8_t* a_scale,
               const uint8_t* b_scale, int a_scale_is_ue8m0, int b_scale_is_ue8m0, int64_t a_scale_block, int64_t b_scale_block,
               const int* offsets, int groups, int M, int N, int asks, uint8_t* d, int64_t d_group, int64_t d_stride, int dtype,
               int accumulate) {
    using namespace zoo;
    extern __shared__ __align__(1024) uint8_t memory[];
    Tile& tile = *reinterpret_cast<Tile*>(memory);
    const ScalesByHand<Tile, RowsAlongK> scales{
        {a_scale, a_scale_is_ue8m0, 0, 1, a_scale_block}, {b_scale, b_scale_is_ue8m0, 0, 1, b_scale_block}, {}};
    const GroupsAlongK order{offsets, groups, M, N, accumulate != 0};
    Product<Tile> product{tile, Tile::CTAS, asks != 0};

    constexpr uint32_t TYPES = TYPE_E4M3 << 7 | TYPE_E4M3 << 10;
    product.run(
        order, Elements<Tile>{a, b}, scales, TYPES, 0x7FFFFFFF, [&](Drain<Tile>& drain, const ScaledWork& work, int lane) {
            const bool f32 = Stored(dtype) == Stored::f32;
            const int bytes = f32 ? 4 : 2;
            const Finish finish{
                d + work.group * d_group * bytes, d_stride, Stored(dtype), nullptr, 0, {nullptr, 0}, 0, nullptr, {nullptr, 0}, 0};
            if (work.elements == 0) {
                store_zeros<Tile>(finish, work, lane);
                return;
            }
            drain.run(tile, work, [&](int first, auto& sums) {
                if (accumulate && lane < work.rows) {
                    const uint8_t* before = finish.d + ((work.row + lane) * d_stride + work.column + first) * bytes;
#pragma unroll
                    for (int i = 0; i < Tile::CHUNK; i += 8)
                        if (first + i < work.columns) add_eight(before + i * bytes, f32, &sums[i]);
                }
                store_chunk<Tile>(finish, work, lane, first, sums);
            });
        });
    product.free();
}
