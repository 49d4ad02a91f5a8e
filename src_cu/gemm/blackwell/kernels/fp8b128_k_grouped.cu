// gemm.fp8b128.k_grouped on Blackwell: D (M, N) of each group = A (M, K) B (N, K)^T over the group's range of K, with scales for 1 x 128 of both.
// Each group has scale blocks of its own. A group begins at any multiple of 16 of K:
//
//     K           |  group 0            |  group 1        |          no group
//     K blocks    |    0     |    1  ...|   0     |    1  ...      a K block's rest belongs to another group, and may be NaN
//     K steps     | . | . | . | . | . | . |                        of 32: the rest of the last step is cleared in shared memory
//     scales      |    0     |    1     |   2     |    3     |     scale blocks of all groups follow each other; rows are contiguous
//
// The MMA warp clears, when all elements and scales of the K block have come.
//
//     (below)                     where is tile `index`, and which K blocks and scales has its group? (schedule/tiles.cuh,
//                                 gemm/schedule/tile_schedule.cuh: bands of tiles)
//     tile.cuh                    what does a CTA hold in shared and tensor memory, and which barriers guard it?
//     pipeline.cuh                which warp does what, and which tile comes next?
//     load/elements.cuh           how do K blocks get into shared memory?
//     fp8b128/scales.cuh          how do their scales get there?
//     mainloop.cuh                how are they multiplied?
//     epilogue/sums.cuh           how do sums get from tensor memory into registers?
//     epilogue/finish.cuh         how do sums become elements of D?
//     epilogue/store_d.cuh        which lanes store which elements of D?

#include "gemm/blackwell/epilogue/store_d.cuh"
#include "gemm/blackwell/fp8b128/scales.cuh"
#include "gemm/blackwell/load/elements.cuh"

namespace zoo {

struct Tile : TileOf<Variant> {
    static_assert(CTAS == 1 && !SWAPPED);

    // Clears the rest of the last K step.
    __device__ __forceinline__ void prepare_part(Stage& stage, int elements) {
        constexpr int STEP = K_BLOCK_BYTES / K_STEPS, CHUNK_BYTES = 16, ROWS = LANES + MMA_B_ROWS;
        const int end = ceil_div(elements, STEP) * STEP;
        uint8_t* rows = stage.mma_a;  // the rows of mma_b follow
#pragma unroll 1
        for (int chunk = elements / CHUNK_BYTES; chunk < end / CHUNK_BYTES; chunk++) {
            const int kept = max(elements - chunk * CHUNK_BYTES, 0);
#pragma unroll 1
            for (int row = int(threadIdx.x) % 32; row < ROWS; row += 32) {
                uint4* cell = reinterpret_cast<uint4*>(rows + row * K_BLOCK_BYTES + (chunk ^ row % 8) * CHUNK_BYTES);
                const uint4 old = *cell;
                *cell = {first_bytes(old.x, kept), first_bytes(old.y, kept - 4), first_bytes(old.z, kept - 8),
                         first_bytes(old.w, kept - 12)};
            }
        }
        let_copies_see_shared_memory();
        __syncwarp();
    }

   private:
    __device__ __forceinline__ static uint32_t first_bytes(uint32_t word, int count) {
        return count >= 4 ? word : count <= 0 ? 0 : word & ((1u << 8 * count) - 1);
    }
};
constexpr int DYNAMIC_SHARED_BYTES = sizeof(Tile);

struct KGroupedTiles {
    const int* ends;
    int count, M, N;
    bool skips_empty;  // groups without columns of K have no tiles

    __device__ __forceinline__ bool at(int index, TileWork& work) const {
        const int rows = ceil_div(M, Tile::TOKENS), columns = ceil_div(N, Tile::COLUMNS), group = index / (rows * columns);
        if (group >= count) return false;
        const int first = group > 0 ? ends[group - 1] : 0, elements = ends[group] - first;
        if (skips_empty && elements == 0) return false;
        int blocks = 0;
        for (int before = int(threadIdx.x) % 32; before < group; before += 32)
            blocks += ceil_div(ends[before] - (before > 0 ? ends[before - 1] : 0), K_BLOCK_BYTES);
        const BandedTile<BAND> banded(index % (rows * columns), rows, columns);
        work.group = group;
        work.first_byte = first;
        work.elements = elements;
        work.token = work.row = banded.row * Tile::TOKENS;
        work.weight = work.column = banded.column * Tile::COLUMNS;
        work.token_scales = work.weight_scales = __reduce_add_sync(0xFFFFFFFF, blocks);  // the group's first block
        work.rows = min(Tile::TOKENS, M - work.row);
        work.columns = min(Tile::COLUMNS, N - work.column);
        work.first_block = 0;
        work.end_block = ceil_div(elements, K_BLOCK_BYTES);
        return true;
    }
};

struct KGroupedScales {
    static constexpr int WEIGHT_SCALES = 4;  // in each lane, of 128
    __device__ __forceinline__ int64_t token_offset(const ScaleMatrix&, const TileWork& work, int token) const {
        return work.token + token;
    }
    __device__ __forceinline__ int64_t weight_offset(const ScaleMatrix&, const TileWork& work, int row) const {
        return work.weight + row;
    }
    __device__ __forceinline__ int first_scale_block(const TileWork& work) const { return work.token_scales; }
};

// Adds D to eight sums of a row. It adds f32 as L2 does: subnormal numbers count as zeros.
__device__ __forceinline__ void add_eight(const uint8_t* before, bool f32, float* sums) {
    const uint4 first = load_16_bytes(before);
    if (f32) {
        const uint4 then = load_16_bytes(before + 16);
        const uint32_t bits[8] = {first.x, first.y, first.z, first.w, then.x, then.y, then.z, then.w};
#pragma unroll
        for (int i = 0; i < 8; i++)
            asm("add.rn.ftz.f32 %0, %1, %2;" : "=f"(sums[i]) : "f"(__uint_as_float(bits[i])), "f"(sums[i]));
    } else {
        const uint32_t words[4] = {first.x, first.y, first.z, first.w};
#pragma unroll
        for (int i = 0; i < 8; i++)
            sums[i] = __fadd_rn(__uint_as_float(i % 2 ? words[i / 2] & 0xFFFF0000 : words[i / 2] << 16), sums[i]);
    }
}

}  // namespace zoo

extern "C" __global__ void __launch_bounds__(zoo::THREADS, 1) ZOO_KERNEL(ZOO_PARAMETERS) {
    using namespace zoo;
    extern __shared__ __align__(1024) uint8_t memory[];
    Tile& tile = *reinterpret_cast<Tile*>(memory);
    const Fp8b128ScaleLoader<Tile, KGroupedScales> scales{
        {a_scale, a_scale_is_ue8m0, 0, 1, a_scale_stride}, {b_scale, b_scale_is_ue8m0, 0, 1, b_scale_stride}, {}};
    const KGroupedTiles tiles{offsets, groups, M, N, accumulate != 0};
    Pipeline<Tile> pipeline{tile, Tile::CTAS, walk_of(persistent != 0, false)};
    pipeline.run(tiles, ElementLoader<Tile>{a, b}, scales, E4M3_TYPES, 0x7FFFFFFF,
                 [&](SumsReader<Tile>& reader, const TileWork& work, int lane) {
                     const bool f32 = d_type == OutputType::f32;
                     const int bytes = f32 ? 4 : 2;
                     const Finish finish{.d = d + work.group * d_group * bytes, .d_stride = d_stride, .dtype = d_type};
                     if (work.elements == 0) {
                         store_zeros<Tile>(finish, work, lane);
                         return;
                     }
                     const StoreChunk<Tile> store(finish, work, lane);
                     reader.read(tile, work, [&](int first, auto& sums) {
                         if (accumulate && lane < work.rows) {
                             const uint8_t* before = finish.d + ((work.row + lane) * d_stride + work.column + first) * bytes;
#pragma unroll
                             for (int i = 0; i < Tile::CHUNK; i += 8)
                                 if (first + i < work.columns) add_eight(before + i * bytes, f32, &sums[i]);
                         }
                         store(first, sums);
                     });
                 });
    pipeline.free_tensor_memory();
}
