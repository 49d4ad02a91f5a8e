// Loads the operands of an fp8b128 GEMM into a stage: elements by tensor copies, scales by a thread for each row. A bulk copy brings the scales
// of a whole tile of A where they are contiguous. Included by all kernels of this family.
//
// Scales have any strides, so row-major and column-major scales share the code, and no kernel transposes them. Threads convert ue8m0 scales to
// f32: math warps read f32 only.
#pragma once

#include <cstdint>

#include "common/e8m0.cuh"
#include "common/tensor_copy.cuh"
#include "gemm/hopper_fp8/tile.cuh"
#include "gemm/schedule/tile_schedule.cuh"

namespace zoo {

// Strides are in bytes.
struct ScaleMatrix {
    const uint8_t* first;
    int64_t row_stride, block_stride;
    int rows;
    bool are_e8m0;
};

__device__ __forceinline__ uint32_t read_scale(const uint8_t* from, bool is_e8m0) {
    uint32_t bits;
    if (is_e8m0)
        asm volatile("ld.global.u8 %0, [%1];" : "=r"(bits) : "l"(from));
    else
        asm volatile("ld.global.b32 %0, [%1];" : "=r"(bits) : "l"(from));
    return bits;
}
__device__ __forceinline__ float scale_of(uint32_t bits, bool is_e8m0) {
    return is_e8m0 ? e8m0_value(bits) : __uint_as_float(bits);
}

// Reads the scales of a row, one K block after the other: AHEAD blocks at a time, AHEAD blocks before they are used. A missing row has zero
// bits. ANY_E8M0: scales are f32 or ue8m0, as the launch chooses; else they are f32, without a test.
template <bool ANY_E8M0, int AHEAD_ = 2>
class ScaleReader {
   public:
    static constexpr int AHEAD = AHEAD_;

    __device__ __forceinline__ void begin(const ScaleMatrix& scales, int row, int first_block) {
        stride = scales.block_stride;
        next = row < scales.rows ? scales.first + row * scales.row_stride + first_block * stride : nullptr;
        are_e8m0 = ANY_E8M0 && scales.are_e8m0;
    }
    // `left`: how many K blocks are still to be read.
    __device__ __forceinline__ void read(int left) {
#pragma unroll
        for (int i = 0; i < AHEAD; i++) {
            current[i] = scale_of(loaded[i], are_e8m0);
            loaded[i] = 0;
            if (next == nullptr || i >= left) continue;
            loaded[i] = read_scale(next, are_e8m0);
            next += stride;
        }
    }
    __device__ __forceinline__ float of(int ahead) const { return current[ahead]; }

   private:
    const uint8_t* next = nullptr;
    int64_t stride = 0;
    bool are_e8m0 = false;
    float current[AHEAD];
    uint32_t loaded[AHEAD] = {};
};

template <class Operands>
__device__ __forceinline__ bool any_e8m0(const Operands& operands) {
    return operands.a_scales.are_e8m0 || operands.b_scales.are_e8m0;
}

// The copying thread loads a K block of a tile in two calls. begin_token() and begin_weight() start the reading of scales.
template <class Operands, class Tile>
concept OperandsOf = requires(const Operands& operands, Tile& tile, const Work& work) {
    operands.prefetch_maps();
    operands.load_weights(tile, 0, work, 0);
    operands.load_tokens(tile, 0, work, 0);
};

// A (M, K), and a B (N, K) for each group, one after the other. If each group has a slot of `tokens` rows of A, a_scales_group_stride leads from
// slot to slot. Else both are 0.
template <class Tile>
struct Operands {
    const TensorMap &a, &b;
    ScaleMatrix a_scales, b_scales;  // the first group's
    int64_t a_scales_group_stride, b_scales_group_stride;
    int tokens, weights;  // rows of a slot; rows of B a group

    __device__ __forceinline__ void prefetch_maps() const {
        prefetch(a);
        prefetch(b);
    }

    // One thread prefetches the tile's first `blocks` K blocks to L2, at any time.
    __device__ __forceinline__ void prefetch_weights(const Work& work, int blocks) const {
        for (int block = work.first_block; block < min(work.end_block, work.first_block + blocks); block++)
            prefetch_box(b, block * SCALE_BLOCK, work.group * weights + work.weight);
    }

    // Some threads prefetch a K block of the tile's tokens and their scales to L2, at any time.
    __device__ __forceinline__ void prefetch_tokens(const Work& work, int block, int thread, int threads) const {
        if (thread == 0) prefetch_box(a, block * SCALE_BLOCK, work.token);
        for (int row = work.token + thread; row < min(work.token + Tile::TOKENS, a_scales.rows); row += threads)
            prefetch(a_scales.first + row * a_scales.row_stride + block * a_scales.block_stride);
    }

    // One thread loads a K block of a tile: weights first. `token_rows`: rows that the boxes of tokens bring.
    __device__ __forceinline__ void load_weights(Tile& tile, int stage, const Work& work, int block,
                                                 int token_rows = Tile::TOKENS) const {
        arrive_expecting_bytes(&tile.full[stage], (Tile::WEIGHTS + token_rows) * SCALE_BLOCK);
        load_box(tile.weights[stage], b, block * SCALE_BLOCK, work.group * weights + work.weight, &tile.full[stage]);
    }
    __device__ __forceinline__ void load_tokens(Tile& tile, int stage, const Work& work, int block) const {
        load_box(tile.tokens[stage], a, block * SCALE_BLOCK, work.token, &tile.full[stage]);
    }

    // `row` of the tile: a row of A, or an entry of weight_scales.
    __device__ __forceinline__ void begin_token(auto& scales, const Work& work, int row) const {
        scales.begin(of_group(a_scales, work, a_scales_group_stride), work.token - work.group * tokens + row, work.first_block);
    }
    __device__ __forceinline__ void begin_weight(auto& scales, const Work& work, int row) const {
        const int scale = Tile::WEIGHTS_PER_ENTRY == SCALE_BLOCK ? work.weight / SCALE_BLOCK + row
                                                                 : (work.weight + row * Tile::WEIGHTS_PER_ENTRY) / SCALE_BLOCK;
        scales.begin(of_group(b_scales, work, b_scales_group_stride), scale, work.first_block);
    }

    // Where a bulk copy can bring the scales of A in each K block: their address in the first K block. Else null.
    __device__ __forceinline__ const uint8_t* token_scales_to_copy(const Work& work) const {
        const ScaleMatrix scales = of_group(a_scales, work, a_scales_group_stride);
        const int row = work.token - work.group * tokens;
        const uint8_t* first = scales.first + row * int64_t(4) + work.first_block * scales.block_stride;
        const bool together = !scales.are_e8m0 && scales.row_stride == 4 && row + Tile::TOKENS <= scales.rows;
        const bool aligned = reinterpret_cast<uint64_t>(first) % 16 == 0 &&
                             (scales.block_stride % 16 == 0 || work.end_block - work.first_block == 1);
        return together && aligned ? first : nullptr;
    }

   protected:
    static __device__ __forceinline__ ScaleMatrix of_group(ScaleMatrix scales, const Work& work, int64_t group_stride) {
        scales.first += work.group * group_stride;
        return scales;
    }
};

// Few tokens: boxes have no more rows than A has, because copies of rows outside the tensor are slower.
template <class Tile>
struct FewTokenOperands : Operands<Tile> {
    __device__ __forceinline__ int token_rows() const { return min(Tile::TOKENS, this->a_scales.rows); }

    __device__ __forceinline__ void load_weights(Tile& tile, int stage, const Work& work, int block) const {
        Operands<Tile>::load_weights(tile, stage, work, block, token_rows());
    }
};

// Replaces FewTokenOperands for tiles of even heights.
template <class Tile>
struct EvenTileOperands : Operands<Tile> {
    int rows = EvenTiles<Tile>(this->a_scales.rows).box();  // computed once: the copying thread has no time for a division

    __device__ __forceinline__ int token_rows() const { return rows; }

    __device__ __forceinline__ void load_weights(Tile& tile, int stage, const Work& work, int block) const {
        Operands<Tile>::load_weights(tile, stage, work, block, rows);
    }
};

// All threads call this before they synchronise. It clears the rows of a stage that no box fills. Their results are not stored, so any value
// would do, but initcheck and the emulator report reads of shared memory that no thread wrote.
template <class Tile, class Operands>
__device__ __forceinline__ void clear_missing_tokens(Tile& tile, const Operands& operands) {
    if constexpr (requires { operands.token_rows(); }) {
        constexpr int PIECES = SCALE_BLOCK / 16, ALL = Tile::TOKENS * PIECES;
        const int first = operands.token_rows() * PIECES + threadIdx.x;
        for (int piece = first; piece < ALL; piece += Tile::THREADS)
#pragma unroll
            for (int stage = 0; stage < Tile::STAGES; stage++) reinterpret_cast<uint4*>(tile.tokens[stage])[piece] = uint4{};
        let_copies_see_shared_memory();
    }
}

}  // namespace zoo
